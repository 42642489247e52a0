// Prometheus' text format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/histogram.h"

namespace sluice {

// Formats 1 as 1.0, and NaN and infinities as Prometheus does.
std::string MetricNumber(double value);
// Escapes the value of a label. Adds no quotes.
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

// Merges texts: each family appears once, with its first HELP and TYPE and the samples of all
// texts. REQUIRES: no two texts have a sample with the same labels.
std::string MergeMetrics(const std::vector<std::string>& texts);

}  // namespace sluice
