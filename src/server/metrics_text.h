// The text format of Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/histogram.h"

namespace sluice {

// 1 as 1.0, and NaN and infinities as Prometheus writes them.
std::string MetricNumber(double value);
// A label's value without its quotes.
std::string EscapeLabel(std::string_view text);

// Writes families of samples. Labels are given as `a="b",c="d"`.
class MetricsText {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help);
  void Sample(std::string_view name, std::string_view labels, double value);
  void Gauge(std::string_view name, std::string_view labels, double value, std::string_view help) {
    Family(name, "gauge", help);
    Sample(name, labels, value);
  }
  void Counter(const std::string& name, std::string_view labels, double value,
               std::string_view help) {
    Family(name + "_total", "counter", help);
    Sample(name + "_total", labels, value);
  }
  void Distribution(const std::string& name, std::string_view labels, const Histogram& histogram,
                    std::string_view help) {
    Family(name, "histogram", help);
    Buckets(name, labels, histogram);
  }
  void Buckets(const std::string& name, std::string_view labels, const Histogram& histogram);
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// The families of several texts, each once, with the samples of all: its first HELP and TYPE count.
// REQUIRES: no two texts have a sample with the same labels.
std::string MergeMetrics(const std::vector<std::string>& texts);

}  // namespace sluice
