#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "recipe/lint.h"

namespace sluice {

std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError: return "error";
    case Severity::kWarning: return "warning";
    case Severity::kNote: return "note";
  }
  return "";
}

namespace {

// Memory and speed of one launch on one accelerator.
struct MemoryLine {
  const Accelerator* accelerator = nullptr;
  double cache_bytes = 0;
  int64_t cache_tokens = 0;
  int64_t full_sequences = 0;    // number of sequences of maximum length that fit
  double tokens_per_second = 0;  // upper limit of a single sequence's speed
};

MemoryLine MemoryOn(const LaunchFacts& launch, const Accelerator& accelerator) {
  constexpr double kContext = 1024;
  MemoryLine line{.accelerator = &accelerator};
  line.cache_bytes = KvCacheBytesOf(launch, accelerator);
  line.cache_tokens = static_cast<int64_t>(line.cache_bytes) / KvBytesPerToken(*launch.stored);
  if (launch.max_model_len > 0) line.full_sequences = line.cache_tokens / launch.max_model_len;
  line.tokens_per_second =
      1 / DecodeStepSeconds(*launch.stored, DevicesOf(launch, accelerator), 1, kContext);
  return line;
}

std::string LaunchTitle(const LaunchFacts& launch) {
  std::string title =
      fmt::format("line {}: {} {}", launch.launch.line, launch.launch.program, launch.model);
  if (!launch.launch.conditions.empty())
    title += fmt::format("  (where {})", fmt::join(launch.launch.conditions, " and "));
  return title;
}

std::string OptionsText(const LaunchFacts& launch) {
  if (!launch.errors.empty()) {
    std::string text;
    for (const std::string& error : launch.errors) text += "  not understood: " + error + "\n";
    return text;
  }
  constexpr size_t kWidest = 58;
  size_t width = 0;
  for (const OptionFact& fact : launch.options)
    width = std::max(width, std::min(fact.given.size(), kWidest));
  std::string text;
  for (const OptionFact& fact : launch.options) {
    std::string given = fact.given;
    if (given.size() > kWidest) given = given.substr(0, kWidest - 3) + "...";
    text += fmt::format("  {:<{}}  {}: {}\n", given, width, fact.effect, fact.text);
  }
  return text;
}

std::string MemoryText(const LaunchFacts& launch,
                       const std::vector<const Accelerator*>& accelerators) {
  if (!launch.stored) {
    return fmt::format("  memory: the dimensions of {} are not known here\n",
                       launch.model.empty() ? "the model" : launch.model);
  }
  const StoredModel& stored = *launch.stored;
  std::string text = fmt::format(
      "  memory: {:.2f} GB of weights ({}: {:.2f} billion in {}, the rest in BF16); keys and "
      "values "
      "{} bytes a token ({})\n",
      ResidentBytes(stored) / kGB, stored.shape.name,
      static_cast<double>(stored.shape.LinearWeights()) / kGB, WeightFormatName(stored.format),
      KvBytesPerToken(stored), stored.kv_element_bytes == 1 ? "FP8" : "BF16");
  const int64_t each = launch.devices_each;
  text += fmt::format("    {:<8} {:>9} {:>9} {:>11} {:>16} {:>20}\n",
                      each == 1 ? "on one" : fmt::format("on {}", each), "memory", "cache",
                      "tokens", "whole contexts", "one stream, at most");
  for (const Accelerator* accelerator : accelerators) {
    const MemoryLine line = MemoryOn(launch, *accelerator);
    const double memory = static_cast<double>(each * accelerator->memory_bytes) / kGB;
    if (line.cache_bytes <= 0) {
      text += fmt::format("    {:<8} {:>6.0f} GB   does not fit\n", accelerator->name, memory);
      continue;
    }
    text += fmt::format("    {:<8} {:>6.0f} GB {:>6.1f} GB {:>11} {:>16} {:>14.1f} tok/s\n",
                        accelerator->name, memory, line.cache_bytes / kGB, line.cache_tokens,
                        launch.max_model_len > 0
                            ? fmt::format("{} of {}", line.full_sequences, launch.max_model_len)
                            : "-",
                        line.tokens_per_second);
  }
  return text;
}

json::Value MemoryJson(const LaunchFacts& launch,
                       const std::vector<const Accelerator*>& accelerators) {
  json::Value memory{json::Value::Object{}};
  memory.Set("weight_bytes", json::Value(ResidentBytes(*launch.stored)));
  memory.Set("weight_format", json::Value(WeightFormatName(launch.stored->format)));
  memory.Set("kv_bytes_per_token", json::Value(KvBytesPerToken(*launch.stored)));
  json::Value::Array lines;
  for (const Accelerator* accelerator : accelerators) {
    const MemoryLine line = MemoryOn(launch, *accelerator);
    json::Value object{json::Value::Object{}};
    object.Set("accelerator", json::Value(accelerator->name));
    object.Set("memory_bytes", json::Value(accelerator->memory_bytes));
    object.Set("fits", json::Value(line.cache_bytes > 0));
    object.Set("kv_cache_bytes", json::Value(line.cache_bytes));
    object.Set("kv_cache_tokens", json::Value(line.cache_tokens));
    object.Set("full_sequences", json::Value(line.full_sequences));
    object.Set("tokens_per_second_limit", json::Value(line.tokens_per_second));
    lines.push_back(std::move(object));
  }
  memory.Set("devices", json::Value(launch.devices_each * launch.copies));
  memory.Set("devices_each_copy", json::Value(launch.devices_each));
  memory.Set("accelerators", json::Value(std::move(lines)));
  return memory;
}

json::Value LaunchJson(const LaunchFacts& launch,
                       const std::vector<const Accelerator*>& accelerators) {
  json::Value object{json::Value::Object{}};
  object.Set("line", json::Value(launch.launch.line));
  object.Set("program", json::Value(launch.launch.program));
  object.Set("model", json::Value(launch.model));
  json::Value::Array conditions;
  for (const std::string& condition : launch.launch.conditions) conditions.emplace_back(condition);
  object.Set("conditions", json::Value(std::move(conditions)));
  object.Set("error", launch.errors.empty() ? json::Value() : json::Value(launch.errors.front()));
  json::Value::Array errors;
  for (const std::string& error : launch.errors) errors.emplace_back(error);
  object.Set("errors", json::Value(std::move(errors)));
  json::Value::Array facts;
  for (const OptionFact& fact : launch.options) {
    json::Value option{json::Value::Object{}};
    option.Set("given", json::Value(fact.given));
    option.Set("effect", json::Value(fact.effect));
    option.Set("text", json::Value(fact.text));
    facts.push_back(std::move(option));
  }
  object.Set("options", json::Value(std::move(facts)));
  object.Set("memory", launch.stored ? MemoryJson(launch, accelerators) : json::Value());
  return object;
}

}  // namespace

std::string FormatReport(const RecipeReport& report) {
  std::string text;
  for (const LaunchFacts& launch : report.launches) {
    text += LaunchTitle(launch) + "\n" + OptionsText(launch) +
            MemoryText(launch, report.accelerators) + "\n";
  }
  if (report.launches.empty()) text += "no launch of a server found\n\n";
  int counts[3] = {};
  for (const Finding& finding : report.findings) {
    ++counts[static_cast<int>(finding.severity)];
    text += fmt::format("{}:{}: {}: {} [{}]\n", report.path.string(), finding.line,
                        SeverityName(finding.severity), finding.text, finding.rule);
  }
  return text + fmt::format("{} errors, {} warnings, {} notes\n", counts[0], counts[1], counts[2]);
}

json::Value ReportJson(const RecipeReport& report) {
  json::Value object{json::Value::Object{}};
  object.Set("file", json::Value(report.path.string()));
  json::Value::Array launches;
  for (const LaunchFacts& launch : report.launches)
    launches.push_back(LaunchJson(launch, report.accelerators));
  object.Set("launches", json::Value(std::move(launches)));
  json::Value::Array findings;
  for (const Finding& finding : report.findings) {
    json::Value each{json::Value::Object{}};
    each.Set("severity", json::Value(SeverityName(finding.severity)));
    each.Set("line", json::Value(finding.line));
    each.Set("rule", json::Value(finding.rule));
    each.Set("text", json::Value(finding.text));
    findings.push_back(std::move(each));
  }
  object.Set("findings", json::Value(std::move(findings)));
  return object;
}

}  // namespace sluice
