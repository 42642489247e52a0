#include "server/metrics_text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

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

std::string MergeMetrics(const std::vector<std::string>& texts) {
  struct MergedFamily {
    const std::string* text = nullptr;  // the text from which HELP and TYPE are copied
    std::string head;
    std::string samples;
  };
  std::vector<MergedFamily> families;
  std::map<std::string, size_t, std::less<>> places;  // keyed by name
  for (const std::string& text : texts) {
    size_t current = families.size();
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      const std::string_view line = std::string_view(text).substr(at, end - at);
      at = end;
      constexpr std::string_view kHelp = "# HELP ", kComment = "#";
      if (line.starts_with(kHelp)) {
        const std::string_view rest = line.substr(kHelp.size());
        const std::string name(rest.substr(0, rest.find_first_of(" \n")));
        current = places.try_emplace(name, families.size()).first->second;
        if (current == families.size()) families.push_back({&text, "", ""});
      }
      if (current == families.size())
        families.push_back({&text, "", ""});  // a sample without a
                                              // HELP before it
      MergedFamily& family = families[current];
      if (!line.starts_with(kComment)) {
        family.samples += line;
      } else if (family.text == &text) {
        family.head += line;
      }
    }
  }
  std::string merged;
  for (const MergedFamily& family : families) merged += family.head + family.samples;
  return merged;
}

}  // namespace sluice
