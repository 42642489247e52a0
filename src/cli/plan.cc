// `sluice plan`: finds machines on which a model serves a trace at a given service level.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_file.h"
#include "bench/dataset.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/deployment_search.h"
#include "cli/simulation_settings.h"
#include "models/model_config.h"
#include "options/values.h"
#include "simulation/trace.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMostTraceBytes = uint64_t{2} << 30;

tl::unexpected<Error> BadPlan(std::string_view option, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--{}: {}", option, message),
              std::string(option));
}

// Parses NAME=NUMBER, with a number above 0.
Result<std::pair<std::string, double>> NameAndNumber(std::string_view option,
                                                     std::string_view word) {
  const size_t equals = word.find('=');
  const auto number =
      options::ParseNumber(std::string(word.substr(std::min(equals, word.size() - 1) + 1)));
  if (equals == 0 || equals == std::string_view::npos || !number || *number <= 0) {
    return BadPlan(option,
                   fmt::format("expected NAME=NUMBER with a number above 0, found \"{}\"", word));
  }
  return std::pair(std::string(word.substr(0, equals)), *number);
}

Result<ServiceLevel> LevelOf(const options::Settings& settings) {
  const std::string text = settings.TextOr("slo");
  if (text.empty())
    return BadPlan("slo", "give the limits that requests must meet: ttft=0.5,tpot=0.03");
  ServiceLevel level;
  for (const std::string_view part : options::Split(text, ',')) {
    ASSIGN_OR_RETURN(const auto pair, NameAndNumber("slo", part));
    if (pair.first != "ttft" && pair.first != "tpot") {
      return BadPlan("slo",
                     fmt::format("expected ttft and tpot, in seconds, found \"{}\"", pair.first));
    }
    (pair.first == "ttft" ? level.ttft : level.tpot) = pair.second;
  }
  level.share = *settings.Number("slo-share");
  return level;
}

Result<std::vector<ReplayRequest>> ShareGptRequests(const std::string& path, int64_t most,
                                                    const ModelArgument& model) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::Load(model.tokenizer_folder));
  bench::DatasetOptions options;
  options.kind = bench::DatasetOptions::Kind::kShareGpt;
  options.path = path;
  options.num_prompts = most;
  options.oversample = false;
  ASSIGN_OR_RETURN(const bench::Dataset data, bench::MakeDataset(options, tokenizer.get()));
  std::vector<ReplayRequest> requests;
  for (const bench::Prompt& prompt : data.prompts)
    requests.push_back({.input = prompt.prompt_tokens, .output = prompt.output_tokens});
  return requests;
}

Result<std::vector<ReplayRequest>> RequestsOf(const options::Settings& settings,
                                              const ModelArgument& model) {
  const std::string path = settings.TextOr("trace");
  if (path.empty()) return BadPlan("trace", "give a file of requests");
  const int64_t most = *settings.Integer("trace-requests");
  const std::optional<double> rate = settings.Number("trace-rate");
  auto text = ReadFile(path, kMostTraceBytes);
  if (!text) return tl::unexpected(std::move(text).error().In("--trace"));
  // A ShareGPT file is a list.
  const size_t first = text->find_first_not_of(" \t\r\n");
  const bool is_list = first != std::string::npos && (*text)[first] == '[';
  if (is_list && !rate) {
    return BadPlan("request-rate",
                   "a ShareGPT file contains no times: give the number of requests per second");
  }
  std::vector<ReplayRequest> requests;
  if (is_list) {
    ASSIGN_OR_RETURN(requests, ShareGptRequests(path, most, model));
  } else {
    ASSIGN_OR_RETURN(requests, ReadTrace(*text, path, most));
  }
  if (rate) SetRate(*rate, requests);
  return requests;
}

Result<std::vector<DeviceProfile>> DevicesToTry(const options::Settings& settings) {
  std::vector<DeviceProfile> devices;
  for (const std::string& name : settings.List("devices")) {
    auto found = DevicesOf(name);
    if (!found) return tl::unexpected(std::move(found).error().In("--devices"));
    devices.push_back(std::move(found->device));
  }
  if (devices.empty()) devices.assign(DeviceProfiles().begin(), DeviceProfiles().end());
  return devices;
}

Result<std::map<std::string, double, std::less<>>> PricesOf(
    const options::Settings& settings, std::span<const DeviceProfile> devices) {
  std::map<std::string, double, std::less<>> prices;
  for (const std::string& word : settings.List("price")) {
    ASSIGN_OR_RETURN(const auto price, NameAndNumber("price", word));
    std::string name = price.first;
    if (std::ranges::find(devices, name, &DeviceProfile::name) == devices.end()) {
      auto found = DevicesOf(name);
      if (!found) return tl::unexpected(std::move(found).error().In("--price"));
      name = found->device.name;
    }
    prices[name] = price.second;
  }
  return prices;
}

std::vector<std::string> FormatsOf(const options::Settings& settings, const ModelConfig& model) {
  std::vector<std::string> formats;
  for (const std::string& word : settings.List("quantizations"))
    formats.push_back(word == "checkpoint" ? "" : word);
  if (!formats.empty()) return formats;
  if (!model.scheme->Method().empty()) return {""};
  return {"", "fp8"};
}

std::string Name(const Deployment& one) {
  return one.num_devices() == 1 ? one.device : fmt::format("{}x{}", one.device, one.num_devices());
}

void PrintTable(const DeploymentSearch& search, const DeploymentQuery& query, int64_t most_rows) {
  const std::string share = fmt::format("{:g} %", 100 * query.level.share);
  fmt::print("{} requests; {} of them within", query.requests.size(), share);
  if (std::isfinite(query.level.ttft)) fmt::print(" ttft {:g} s", query.level.ttft);
  if (std::isfinite(query.level.tpot)) fmt::print(" tpot {:g} s", query.level.tpot);
  fmt::print("\n\n");
  if (!search.found.empty()) {
    fmt::print("{:<16}{:>8}  {:>2} {:>2} {:>2}  {:<18}{:>9}{:>10}{:>7}{:>10}{:>12}  {}\n",
               "devices", "price/h", "tp", "pp", "dp", "weights", "ttft s", "tpot ms", "error",
               "tok/s", "KV tokens", "kept");
  }
  int64_t rows = 0;
  for (const Deployment& one : search.found) {
    if (++rows > most_rows) break;
    fmt::print(
        "{:<16}{:>8}  {:>2} {:>2} {:>2}  {:<18}{:>9.3f}{:>10.2f}{:>6.0f}%{:>10.0f}{:>12}  "
        "{:.1f} %{}\n",
        Name(one), one.has_price ? fmt::format("{:.2f}", one.price) : "-", one.tensor_size,
        one.num_stages, one.num_engines, one.format, one.ttft, 1e3 * one.tpot, 100 * one.error,
        one.output_per_second, one.kv_tokens, 100 * one.share,
        one.is_safe ? "" : ", not with times longer by the error");
  }
  if (search.found.empty()) fmt::print("no deployment keeps it\n");
  if (!search.notes.empty()) fmt::print("\n");
  for (const std::string& note : search.notes) fmt::print("left out: {}\n", note);
}

json::Value ToJson(const DeploymentSearch& search) {
  json::Value::Array rows;
  for (const Deployment& one : search.found) {
    json::Value row{json::Value::Object{}};
    row.Set("devices", Name(one));
    row.Set("device", one.device);
    row.Set("num_devices", one.num_devices());
    row.Set("tensor_parallel_size", one.tensor_size);
    row.Set("pipeline_parallel_size", one.num_stages);
    row.Set("data_parallel_size", one.num_engines);
    row.Set("weights", one.format);
    row.Set("price_per_hour", one.has_price ? json::Value(one.price) : json::Value());
    row.Set("ttft_seconds", one.ttft);
    row.Set("tpot_seconds", one.tpot);
    row.Set("relative_error", one.error);
    row.Set("kept_share", one.share);
    row.Set("kept_with_error", one.is_safe);
    row.Set("output_tokens_per_second", one.output_per_second);
    row.Set("kv_tokens", one.kv_tokens);
    row.Set("weight_bytes_per_device", one.weight_bytes);
    rows.push_back(std::move(row));
  }
  json::Value value{json::Value::Object{}};
  value.Set("deployments", std::move(rows));
  json::Value::Array notes;
  for (const std::string& note : search.notes) notes.emplace_back(note);
  value.Set("left_out", std::move(notes));
  value.Set("replays", search.num_tried);
  return value;
}

}  // namespace

Result<int> RunPlan(const options::Settings& settings) {
  DeploymentQuery query;
  ASSIGN_OR_RETURN(query.level, LevelOf(settings));
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, ModelPart::kAllButWeights));
  ASSIGN_OR_RETURN(query.requests, RequestsOf(settings, model));
  query.config.model_folder = model.folder;
  query.most_devices = static_cast<int>(*settings.Integer("max-devices"));
  ASSIGN_OR_RETURN(query.devices, DevicesToTry(settings));
  ASSIGN_OR_RETURN(query.prices, PricesOf(settings, query.devices));
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(model.folder));
  query.formats = FormatsOf(settings, config);
  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  ASSIGN_OR_RETURN(const DeploymentSearch search, FindDeployments(query, [&](int tried) {
                     if (shows_progress) fmt::print(stderr, "\r{} replays ", tried);
                   }));
  if (shows_progress) fmt::print(stderr, "\r\x1b[K");
  if (settings.Flag("json"))
    fmt::print("{}\n", json::Write(ToJson(search)));
  else
    PrintTable(search, query, *settings.Integer("plan-rows"));
  return search.found.empty() ? 1 : 0;
}

}  // namespace sluice::cli
