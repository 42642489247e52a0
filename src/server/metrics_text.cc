#include "server/metrics_text.h"

#include <cmath>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"

namespace sluice {

std::string MetricNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  std::string out;
  json::AppendDouble(out, value);
  return out;
}

std::string EscapeLabel(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '"')
      out += "\\\"";
    else if (c == '\n')
      out += "\\n";
    else
      out.push_back(c);
  }
  return out;
}

void MetricsText::Family(std::string_view name, std::string_view type, std::string_view help) {
  AppendFormat(out_, "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::Sample(std::string_view name, std::string_view labels, double value) {
  out_ += name;
  if (!labels.empty()) out_.append("{").append(labels).append("}");
  out_.append(" ").append(MetricNumber(value)).append("\n");
}

void MetricsText::Buckets(const std::string& name, std::string_view labels,
                          const Histogram& histogram) {
  const std::string prefix = labels.empty() ? "" : std::string(labels) + ",";
  uint64_t total = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    total += histogram.counts()[i];
    const std::string bound =
        i < histogram.bounds().size() ? MetricNumber(histogram.bounds()[i]) : "+Inf";
    Sample(name + "_bucket", fmt::format("{}le=\"{}\"", prefix, bound), static_cast<double>(total));
  }
  Sample(name + "_count", labels, static_cast<double>(histogram.count()));
  Sample(name + "_sum", labels, histogram.sum());
}

}  // namespace sluice
