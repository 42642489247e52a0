#include "cli/bench_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <limits>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chat/chat_prompt.h"
#include "chat/model_templates.h"
#include "cli/configs.h"
#include "cli/remote.h"
#include "client/http_client.h"
#include "hub/resolve.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using bench::DatasetOptions;
using options::Dialect;
using options::Settings;

tl::unexpected<Error> Bad(std::string option, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--{}: {}", option, message), option);
}

double NumberOrInfinity(const Settings& settings, std::string_view name) {
  return settings.Number(name).value_or(std::numeric_limits<double>::infinity());
}

Result<std::pair<std::string, std::string>> KeyAndValue(const std::string& option,
                                                        const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0)
    return Bad(option, fmt::format("expected KEY=VALUE, found '{}'", word));
  return std::pair(word.substr(0, equals), word.substr(equals + 1));
}

std::string Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

std::string DateNow() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &parts);
  return text;
}

Status ReadTarget(const Settings& settings, BenchPlan& plan) {
  bench::LoadOptions& load = plan.load;
  const std::string backend = settings.TextOr("bench-backend");
  if (backend == "openai-chat") {
    load.api = bench::Api::kChat;
  } else if (backend != "openai" && backend != "vllm" && backend != "openai-comp" &&
             backend != "openai-completions") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--backend {}: this client supports openai, openai-comp, "
                            "openai-completions, vllm (all /v1/completions) and openai-chat; use "
                            "one of them",
                            backend),
                "backend");
  }
  plan.report.backend = backend;
  const std::string address = settings.TextOr(
      "base-url",
      fmt::format("{}:{}", settings.TextOr("bench-host"), *settings.Integer("bench-port")));
  ASSIGN_OR_RETURN(const Remote remote, RemoteAt(settings, address));
  load.url = remote.url;
  load.tls = remote.tls;
  load.path = settings.TextOr(
      "endpoint", load.api == bench::Api::kChat ? "/v1/chat/completions" : "/v1/completions");
  if (!load.path.starts_with('/')) load.path.insert(0, "/");
  // The base URL may already contain the API's path.
  if (load.url.path.ends_with("/v1") && load.path.starts_with("/v1/"))
    load.url.path.resize(load.url.path.size() - 3);
  if (load.api == bench::Api::kChat && !load.path.ends_with("chat/completions")) {
    return Bad("endpoint", fmt::format("openai-chat posts to a path that ends in "
                                       "chat/completions, found {}",
                                       load.path));
  }
  for (const auto& [name, value] : remote.headers()) load.headers.emplace_back(name, value);
  for (const std::string& word : settings.List("header")) {
    ASSIGN_OR_RETURN(auto header, KeyAndValue("header", word));
    if (word.find_first_of("\r\n") != std::string::npos)
      return Bad("header", "a header must be a single line");
    load.headers.push_back(std::move(header));
  }
  load.request_id_prefix = settings.TextOr("request-id-prefix");
  if (load.request_id_prefix.empty())
    load.request_id_prefix = fmt::format("bench-{:08x}-", std::random_device{}());
  load.models = settings.List("bench-lora-modules");
  load.random_models = settings.TextOr("lora-assignment") == "random";
  return {};
}

Status ReadBody(const Settings& settings, BenchPlan& plan) {
  bench::LoadOptions& load = plan.load;
  const auto merge = [&](std::string_view name) -> Status {
    const auto text = settings.Text(name);
    if (!text) return {};
    ASSIGN_OR_RETURN(const json::Value value, json::Parse(*text));
    if (name == "extra-body") {
      for (const auto& [key, member] : value.as_object()) load.extra_body.Set(key, member);
    } else {
      load.extra_body.Set("chat_template_kwargs", value);
    }
    return {};
  };
  constexpr std::pair<std::string_view, std::string_view> kNumbers[] = {
      {"bench-top-p", "top_p"},
      {"bench-min-p", "min_p"},
      {"bench-temperature", "temperature"},
      {"bench-frequency-penalty", "frequency_penalty"},
      {"bench-presence-penalty", "presence_penalty"},
      {"bench-repetition-penalty", "repetition_penalty"}};
  for (const auto& [option, field] : kNumbers) {
    if (const auto value = settings.Number(option)) load.extra_body.Set(field, *value);
  }
  if (const auto top_k = settings.Integer("bench-top-k")) load.extra_body.Set("top_k", *top_k);
  // TensorRT-LLM's tool uses greedy sampling by default.
  if (settings.dialect() == Dialect::kTrtllm && !settings.Number("bench-temperature"))
    load.extra_body.Set("temperature", 0.0);
  if (settings.Flag("bench-use-beam-search")) load.extra_body.Set("use_beam_search", true);
  if (load.api == bench::Api::kChat) RETURN_IF_ERROR(merge("bench-chat-template-kwargs"));
  RETURN_IF_ERROR(merge("extra-body"));
  load.ignore_eos = settings.Flag("ignore-eos");
  load.stream = !settings.Flag("no-stream");
  load.logprobs = settings.Integer("bench-logprobs");
  // TensorRT-LLM's tool opens a connection for each request, so connecting counts in the time to
  // first token.
  load.keep_alive = settings.dialect() != Dialect::kTrtllm;
  return {};
}

Status ReadTraffic(const Settings& settings, BenchPlan& plan, bool sweep) {
  bench::ArrivalOptions& arrivals = plan.arrivals;
  arrivals.burstiness = NumberOrInfinity(settings, "burstiness");
  arrivals.seed = static_cast<uint64_t>(*settings.Integer("bench-seed"));
  plan.load.seed = arrivals.seed;
  plan.num_warmups = *settings.Integer("num-warmups");
  plan.ready_check_seconds = *settings.Integer("ready-check-timeout-sec");
  plan.test_input = settings.Flag("test-input");
  plan.profile = settings.Flag("profile");
  plan.progress_bar = !settings.Flag("disable-tqdm");
  if (sweep) return {};
  arrivals.requests_per_second = NumberOrInfinity(settings, "request-rate");
  plan.load.max_concurrency = settings.Integer("max-concurrency");
  const auto start = settings.Integer("ramp-up-start-rps"),
             end = settings.Integer("ramp-up-end-rps");
  const auto strategy = settings.Text("ramp-up-strategy");
  if (!strategy) {
    if (start || end)
      return Bad(start ? "ramp-up-start-rps" : "ramp-up-end-rps",
                 "a ramp needs --ramp-up-strategy linear or exponential");
    return {};
  }
  if (std::isfinite(arrivals.requests_per_second)) {
    return Bad("ramp-up-strategy", "the ramp determines the rate: omit --request-rate or the ramp");
  }
  if (!start || !end)
    return Bad("ramp-up-strategy", "a ramp needs --ramp-up-start-rps and --ramp-up-end-rps");
  if (*start > *end)
    return Bad("ramp-up-start-rps",
               fmt::format("expected at most --ramp-up-end-rps {}, found {}", *end, *start));
  arrivals.ramp = *strategy == "linear" ? bench::ArrivalOptions::Ramp::kLinear
                                        : bench::ArrivalOptions::Ramp::kExponential;
  arrivals.ramp_start = static_cast<double>(*start);
  arrivals.ramp_end = static_cast<double>(*end);
  return {};
}

Status ReadRangeRatio(const Settings& settings, DatasetOptions& data) {
  const std::string word = settings.TextOr("random-range-ratio");
  if (auto number = options::ParseNumber(word)) {
    data.input_range_ratio = data.output_range_ratio = *number;
    return {};
  }
  const auto object = json::Parse(word);
  const json::Value* input = object ? object->Find("input") : nullptr;
  const json::Value* output = object ? object->Find("output") : nullptr;
  if (input == nullptr || output == nullptr || !input->is_number() || !output->is_number()) {
    return Bad(
        "random-range-ratio",
        fmt::format("expected a number or {{\"input\": r, \"output\": r}}, found '{}'", word));
  }
  data.input_range_ratio = input->as_double();
  data.output_range_ratio = output->as_double();
  return {};
}

// Images can only be parts of chat messages.
Status CheckSendsChats(const BenchPlan& plan, std::string_view dataset) {
  if (plan.load.api == bench::Api::kChat) return {};
  return Bad(
      "dataset-name",
      fmt::format("{} sends images, which go in a chat: use --backend openai-chat", dataset));
}

Status ReadRandomImages(const Settings& settings, BenchPlan& plan) {
  RETURN_IF_ERROR(CheckSendsChats(plan, "random-mm"));
  bench::RandomImageOptions& images = plan.dataset.images.emplace();
  images.base_items = *settings.Integer("random-mm-base-items-per-request");
  images.range_ratio = *settings.Number("random-mm-num-mm-items-range-ratio");
  constexpr const char* kLimit = "random-mm-limit-mm-per-prompt";
  if (const auto text = settings.Text(kLimit)) {
    const auto limits = json::Parse(*text);
    const json::Value* limit = limits ? limits->Find("image") : nullptr;
    if (limit == nullptr || !limit->is_integer() || limit->as_integer() < 0)
      return Bad(kLimit, fmt::format("expected {{\"image\": N}}, found {}", *text));
    images.most_items = limit->as_integer();
  }
  constexpr const char* kSizes = "random-mm-bucket-config";
  if (const auto sizes = settings.Text(kSizes)) {
    auto buckets = bench::ParseImageBuckets(*sizes);
    if (!buckets) return Bad(kSizes, buckets.error().message);
    images.buckets = *std::move(buckets);
  }
  return {};
}

Status ReadDataset(const Settings& settings, BenchPlan& plan) {
  using Kind = DatasetOptions::Kind;
  DatasetOptions& data = plan.dataset;
  const std::string name = settings.TextOr("dataset-name");
  data.path = settings.TextOr("dataset-path");
  data.num_prompts = *settings.Integer("bench-num-prompts");
  data.seed = plan.arrivals.seed;
  data.shuffle = !settings.Flag("disable-shuffle");
  data.oversample = !settings.Flag("no-oversample");
  data.send_ids = settings.Flag("tokenize-on-client");
  const auto common_output = settings.Integer("bench-output-len");
  const auto lengths = [&](std::string_view input, std::string_view output) {
    if (!input.empty())
      data.input_len = settings.Integer("bench-input-len").value_or(*settings.Integer(input));
    data.output_len = common_output ? common_output : settings.Integer(output);
  };
  if (name == "random" || name == "random-mm") {
    data.kind = Kind::kRandom;
    if (name == "random-mm") RETURN_IF_ERROR(ReadRandomImages(settings, plan));
    lengths("random-input-len", "random-output-len");
    data.prefix_len = *settings.Integer("random-prefix-len");
    RETURN_IF_ERROR(ReadRangeRatio(settings, data));
    if (!data.path.empty() && settings.dialect() != Dialect::kTrtllm) {
      return Bad("dataset-path",
                 "random prompts are generated, not read from a file; use --dataset-name sharegpt, "
                 "custom or sonnet for a file");
    }
    const bool ids = settings.Flag("random-ids");
    if (ids) data.path.clear();
    if (settings.dialect() == Dialect::kTrtllm && !ids && data.path.empty()) {
      fmt::print(
          "Random prompts are generated from token ids, as with --random-ids; --dataset-path "
          "SHAREGPT.json generates them from its text.\n");
    }
    plan.load.ignore_eos = true;  // gives answers the requested length
  } else if (name == "sharegpt") {
    data.kind = Kind::kShareGpt;
    lengths("", "sharegpt-output-len");
  } else if (name == "custom" || name == "custom_image") {
    data.kind = Kind::kCustom;
    data.reads_images = name == "custom_image";
    if (data.reads_images) RETURN_IF_ERROR(CheckSendsChats(plan, name));
    lengths("", "custom-output-len");
    if (data.output_len == 0)
      return Bad("custom-output-len", "expected at least 1, or -1 to use the lines' own values");
  } else if (name == "sonnet") {
    data.kind = Kind::kSonnet;
    lengths("sonnet-input-len", "sonnet-output-len");
    data.prefix_len = *settings.Integer("sonnet-prefix-len");
  } else if (name == "prefix_repetition") {
    data.kind = Kind::kPrefixRepetition;
    lengths("prefix-repetition-suffix-len", "prefix-repetition-output-len");
    data.prefix_len = *settings.Integer("prefix-repetition-prefix-len");
    data.num_prefixes = *settings.Integer("prefix-repetition-num-prefixes");
  } else {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--dataset-name {}: expected random, random-mm, sharegpt, custom, "
                            "custom_image, sonnet or prefix_repetition; for a file of prompts, use "
                            "--dataset-name custom --dataset-path FILE.jsonl",
                            name),
                "dataset-name");
  }
  if (data.send_ids && plan.load.api == bench::Api::kChat) {
    return Bad("tokenize-on-client", "chats are sent as text; omit it or use --backend openai");
  }
  return {};
}

Status ReadReport(const Settings& settings, BenchPlan& plan) {
  bench::ReportOptions& report = plan.report;
  report.trtllm = settings.dialect() == Dialect::kTrtllm;
  report.metrics.clear();
  const std::string metrics = settings.TextOr("percentile-metrics");
  for (std::string_view word : options::Split(metrics, ',')) {
    const std::string name = Trim(word);
    const auto* found =
        std::find_if(std::begin(bench::kMetrics), std::end(bench::kMetrics),
                     [&](bench::Metric metric) { return bench::MetricName(metric) == name; });
    if (found == std::end(bench::kMetrics))
      return Bad("percentile-metrics",
                 fmt::format("expected ttft, tpot, itl or e2el, found '{}'", name));
    report.metrics.push_back(*found);
  }
  report.percentiles.clear();
  const std::string percentiles = settings.TextOr("metric-percentiles");
  for (std::string_view word : options::Split(percentiles, ',')) {
    const auto value = options::ParseNumber(Trim(word));
    if (!value || *value < 0 || *value > 100)
      return Bad("metric-percentiles", fmt::format("expected 0 to 100, found '{}'", word));
    report.percentiles.push_back(*value);
  }
  for (const std::string& word : settings.List("goodput")) {
    const size_t colon = word.find(':');
    const std::string key = word.substr(0, colon);
    const auto value =
        options::ParseNumber(colon == std::string::npos ? "" : word.substr(colon + 1));
    if (!value || *value < 0)
      return Bad("goodput",
                 fmt::format("expected NAME:MILLISECONDS such as ttft:200, found '{}'", word));
    if (key == "ttft") {
      plan.goodput.ttft = *value;
    } else if (key == "tpot") {
      plan.goodput.tpot = *value;
    } else if (key == "e2el") {
      plan.goodput.e2el = *value;
    } else {
      return Bad("goodput", fmt::format("expected ttft, tpot or e2el, found '{}'", key));
    }
  }
  for (const std::string& word : settings.List("metadata")) {
    ASSIGN_OR_RETURN(const auto pair, KeyAndValue("metadata", word));
    report.metadata.emplace_back(Trim(pair.first), Trim(pair.second));
  }
  report.label = settings.Text("label");
  report.detailed = settings.Flag("save-detailed");
  report.date = DateNow();
  return {};
}

HttpClient ClientOf(const bench::LoadOptions& load) {
  return HttpClient(load.url, {load.headers.begin(), load.headers.end()}, load.tls);
}

// Returns the server's first model: its name, and the name under which its files are found.
Result<std::pair<std::string, std::string>> FirstModel(const bench::LoadOptions& load) {
  const HttpClient client = ClientOf(load);
  ASSIGN_OR_RETURN(const ClientResponse response, client.Get("/v1/models"));
  const auto body = json::Parse(response.body);
  const json::Value* data = body ? body->Find("data") : nullptr;
  if (response.status != 200 || data == nullptr || !data->is_array() || data->as_array().empty()) {
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("GET /v1/models answers {} and names no model; give --model", response.status),
        "model");
  }
  const json::Value* id = data->as_array()[0].Find("id");
  const json::Value* root = data->as_array()[0].Find("root");
  if (id == nullptr || !id->is_string())
    return Fail(ErrorCode::kUnavailable, "GET /v1/models names no model; give --model", "model");
  return std::pair(id->as_string(),
                   root != nullptr && root->is_string() ? root->as_string() : id->as_string());
}

// Whether the server has /tokenize, which not every server has.
bool ServerTokenizes(const bench::LoadOptions& load) {
  const bench::ServerTokenizer server(ClientOf(load), load.model);
  return !server.Encode("a", false).empty() && server.status().has_value();
}

// Whether the files of `name` are on this machine.
bool IsHere(const Settings& settings, const std::string& name) {
  return ResolveModel({.argument = name, .download_dir = settings.TextOr("download-dir")})
      .has_value();
}

Result<std::filesystem::path> TokenizerFolder(const options::Settings& settings,
                                              const std::string& name) {
  auto resolved = FetchNamedModel(settings, name, /*revision=*/"", ModelPart::kTokenizer,
                                  /*update=*/false, {});
  if (!resolved) {
    Error error = std::move(resolved).error();
    error.message = fmt::format(
        "prompts are generated with the model's tokenizer, but '{}' was not found: {}. Give its "
        "folder "
        "as --tokenizer, or use texts of your own with --dataset-name custom "
        "--skip-tokenizer-init",
        name, error.message);
    return tl::unexpected<Error>(std::move(error));
  }
  return resolved->folder;
}

// Turns prompts into user messages, rendered with the model's chat template.
Status AddChatTemplate(const std::filesystem::path& folder, BenchPlan& plan) {
  ASSIGN_OR_RETURN(ModelTemplates loaded,
                   ModelTemplates::Load(folder, plan.tokenizer->config(), ""));
  const auto templates = std::make_shared<const ModelTemplates>(std::move(loaded));
  if (templates->Select(false) == nullptr) {
    if (plan.dataset.kind == DatasetOptions::Kind::kSonnet) return {};
    return Bad(
        "skip-chat-template",
        "the tokenizer has no chat template; give this option to send the prompts unchanged");
  }
  plan.dataset.apply_chat_template = [templates, special = SpecialTokens(plan.tokenizer->config())](
                                         const std::string& text) -> Result<std::string> {
    json::Value message{json::Value::Object{{"role", "user"}, {"content", text}}};
    return RenderChatPrompt(*templates->Select(false), special,
                            json::Value(json::Value::Array{std::move(message)}));
  };
  return {};
}

}  // namespace

Result<BenchPlan> MakeBenchPlan(const Settings& settings, bool sweep) {
  BenchPlan plan;
  RETURN_IF_ERROR(ReadTarget(settings, plan));
  RETURN_IF_ERROR(ReadTraffic(settings, plan, sweep));
  RETURN_IF_ERROR(ReadBody(settings, plan));
  RETURN_IF_ERROR(ReadDataset(settings, plan));
  RETURN_IF_ERROR(ReadReport(settings, plan));
  if (settings.Flag("bench-skip-tokenizer-init") &&
      plan.dataset.kind != DatasetOptions::Kind::kCustom) {
    return Bad("skip-tokenizer-init", "only --dataset-name custom works without a tokenizer");
  }

  std::string model = settings.TextOr("bench-model");
  plan.load.model = settings.TextOr("bench-served-model-name", model);
  if (model.empty()) {
    fmt::print("Model not specified, fetching first model from server...\n");
    ASSIGN_OR_RETURN(const auto first, FirstModel(plan.load));
    fmt::print("First model name: {}, first model id: {}\n", first.first, first.second);
    if (plan.load.model.empty()) plan.load.model = first.first;
    model = first.second;
  }
  plan.report.model = model;
  if (settings.Flag("bench-skip-tokenizer-init")) return plan;

  plan.report.tokenizer = settings.TextOr("bench-tokenizer", model);
  const bool of_texts = plan.dataset.kind == DatasetOptions::Kind::kCustom ||
                        plan.dataset.kind == DatasetOptions::Kind::kSonnet;
  const bool with_template =
      of_texts && plan.load.api == bench::Api::kCompletions && !settings.Flag("skip-chat-template");
  if (!settings.Given("bench-tokenizer") && !IsHere(settings, model) &&
      ServerTokenizes(plan.load)) {
    if (with_template && plan.dataset.kind == DatasetOptions::Kind::kCustom) {
      return Bad("skip-chat-template",
                 fmt::format("the chat template of '{}' is not on this machine: give this option "
                             "to send the prompts unchanged, --backend openai-chat for the "
                             "server to apply it, or --tokenizer FOLDER",
                             model));
    }
    fmt::print("{} is not on this machine: the server's /tokenize counts the tokens.\n", model);
    plan.prompts = std::make_unique<bench::ServerTokenizer>(ClientOf(plan.load), plan.load.model);
    return plan;
  }
  ASSIGN_OR_RETURN(const std::filesystem::path folder,
                   TokenizerFolder(settings, plan.report.tokenizer));
  ASSIGN_OR_RETURN(plan.tokenizer, Tokenizer::Load(folder));
  plan.prompts = std::make_unique<bench::LocalTokenizer>(*plan.tokenizer);
  if (with_template) RETURN_IF_ERROR(AddChatTemplate(folder, plan));
  return plan;
}

}  // namespace sluice::cli
