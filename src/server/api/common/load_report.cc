#include "server/api/common/load_report.h"

#include <fmt/format.h>

#include "server/api/common/python_text.h"

namespace sluice {

std::optional<HttpHeader> LoadReport(const std::string* format, const Metrics& metrics, bool idle) {
  if (format == nullptr) return std::nullopt;
  std::string kind = *format;
  for (char& c : kind) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  const std::string waiting = PythonFloat(idle ? 0.0 : static_cast<double>(metrics.num_waiting()));
  const std::string usage = PythonFloat(idle ? 0.0 : metrics.cache_usage());
  if (kind == "JSON") {
    return HttpHeader{
        "endpoint-load-metrics",
        fmt::format(
            R"(JSON {{"named_metrics": {{"num_requests_waiting": {}, "kv_cache_usage_perc": {}}}}})",
            waiting, usage)};
  }
  if (kind == "TEXT") {
    return HttpHeader{"endpoint-load-metrics",
                      fmt::format("TEXT named_metrics.num_requests_waiting={}, "
                                  "named_metrics.kv_cache_usage_perc={}",
                                  waiting, usage)};
  }
  return std::nullopt;
}

}  // namespace sluice
