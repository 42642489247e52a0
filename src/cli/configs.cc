#include "cli/configs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/json.h"
#include "checkpoint/foreign_format.h"
#include "checkpoint/scheme.h"
#include "cli/adapter_settings.h"
#include "cli/graph_settings.h"
#include "cli/near_folder.h"
#include "cli/progress.h"
#include "cli/simulation_settings.h"
#include "cli/speculation_settings.h"
#include "cli/usage.h"
#include "device/device.h"
#include "engine/simulated_engine.h"
#include "hub/resolve.h"
#include "models/model_config.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

std::string ModelName(const options::Settings& settings) {
  return settings.positionals().empty() ? settings.TextOr("model") : settings.positionals()[0];
}

// Returns a ModelArgument with only its names set.
ModelArgument NamesOf(std::string as_given) {
  ModelArgument model;
  model.name = as_given;
  while (model.name.size() > 1 && model.name.ends_with('/')) model.name.pop_back();
  model.as_given = std::move(as_given);
  return model;
}

ApiDialect ApiDialectOf(options::Dialect dialect) {
  switch (dialect) {
    case options::Dialect::kVllm: return ApiDialect::kVllm;
    case options::Dialect::kTrtllm: return ApiDialect::kTrtllm;
    case options::Dialect::kSluice: break;
  }
  return ApiDialect::kSluice;
}

// A word that an option accepts, and the value that the word denotes.
template <typename T>
struct Word {
  std::string_view word;
  T value;
};

constexpr Word<std::optional<ElementType>> kDtypes[] = {
    {"auto", std::nullopt},       {"bfloat16", ElementType::kBF16}, {"float32", ElementType::kF32},
    {"float", ElementType::kF32}, {"float16", ElementType::kF16},   {"half", ElementType::kF16},
};
constexpr Word<std::optional<ElementType>> kCacheDtypes[] = {
    {"auto", std::nullopt},
    {"bfloat16", ElementType::kBF16},
    {"float32", ElementType::kF32},
    {"fp8", ElementType::kF8E4M3},
    {"fp8_e4m3", ElementType::kF8E4M3},
};
constexpr Word<ModelOptions::ActivationRounding> kActivationFormats[] = {
    {"auto", ModelOptions::ActivationRounding::kAuto},
    {"bf16", ModelOptions::ActivationRounding::kBf16},
    {"checkpoint", ModelOptions::ActivationRounding::kCheckpoint},
};
constexpr Word<DeviceChoice> kDevices[] = {
    {"auto", DeviceChoice::kAuto},         {"cpu", DeviceChoice::kCpu},
    {"cuda", DeviceChoice::kCuda},         {"hip", DeviceChoice::kHip},
    {"emulated", DeviceChoice::kEmulated},
};
constexpr Word<RunnerChoice> kRunners[] = {
    {"auto", RunnerChoice::kAuto},
    {"generate", RunnerChoice::kGenerate},
    {"pooling", RunnerChoice::kPooling},
};
constexpr Word<ConvertChoice> kConversions[] = {
    {"auto", ConvertChoice::kAuto},
    {"none", ConvertChoice::kNone},
    {"embed", ConvertChoice::kEmbed},
    {"classify", ConvertChoice::kClassify},
};
constexpr Word<SchedulingPolicy> kPolicies[] = {
    {"fcfs", SchedulingPolicy::kFcfs},
    {"priority", SchedulingPolicy::kPriority},
    {"fair", SchedulingPolicy::kFair},
};
constexpr Word<std::optional<kernels::Isa>> kIsas[] = {
    {"auto", std::nullopt},
    {"reference", kernels::Isa::kReference},
    {"portable", kernels::Isa::kPortable},
    {"avx2", kernels::Isa::kAvx2},
    {"avx2_vnni", kernels::Isa::kAvx2Vnni},
    {"avx512", kernels::Isa::kAvx512},
    {"avx512_vnni", kernels::Isa::kAvx512Vnni},
    {"avx512_bf16", kernels::Isa::kAvx512Bf16},
    {"amx", kernels::Isa::kAmx},
    {"neon", kernels::Isa::kNeon},
    {"neon_dotprod", kernels::Isa::kNeonDotprod},
    {"neon_bf16", kernels::Isa::kNeonBf16},
};

// REQUIRES: the option's value is one of `words`. The option table has checked that.
template <typename T, size_t N>
T ValueOf(const options::Settings& settings, std::string_view option, const Word<T> (&words)[N]) {
  const std::string given = settings.TextOr(option);
  const auto* found = std::find_if(std::begin(words), std::end(words),
                                   [&](const Word<T>& known) { return known.word == given; });
  CHECK(found != std::end(words), "--{} has no value for \"{}\"", option, given);
  return found->value;
}

// Returns the folder that --generation-config names; "" for the model's own.
Result<std::filesystem::path> GenerationConfigFolder(const options::Settings& settings,
                                                     const DownloadHooks& hooks) {
  const std::string source = settings.TextOr("generation-config", "auto");
  if (source == "auto" || source == "vllm") return std::filesystem::path();
  auto resolved = FetchNamedModel(settings, source, "", ModelPart::kGenerationConfig,
                                  /*update=*/false, hooks);
  if (!resolved) return tl::unexpected(std::move(resolved).error().In("--generation-config"));
  const std::filesystem::path& folder = resolved->folder;
  if (std::filesystem::exists(folder / "generation_config.json")) return folder;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--generation-config {}: expected auto, vllm or a folder with a "
                          "generation_config.json, which {} lacks",
                          source, folder.string()),
              "generation-config");
}

// Returns --hf-overrides merged with the options for its most used keys; null if none is given.
Result<json::Value> ConfigOverrides(const options::Settings& settings) {
  json::Value overrides{json::Value::Object{}};
  if (const auto text = settings.Text("hf-overrides")) {
    ASSIGN_OR_RETURN(overrides, json::Parse(*text));
  }
  const auto add = [&](std::string_view option, std::string_view key, json::Value value) -> Status {
    if (overrides.Find(key) != nullptr) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--{} and {} of --hf-overrides are the same setting: give one of them",
                      option, key),
          std::string(option));
    }
    overrides.Set(key, std::move(value));
    return {};
  };
  if (const auto text = settings.Text("rope-scaling")) {
    ASSIGN_OR_RETURN(json::Value block, json::Parse(*text));
    RETURN_IF_ERROR(add("rope-scaling", "rope_scaling", std::move(block)));
  }
  if (const auto theta = settings.Number("rope-theta"))
    RETURN_IF_ERROR(add("rope-theta", "rope_theta", *theta));
  return overrides.as_object().empty() ? json::Value() : overrides;
}

}  // namespace

bool HasModelArgument(const options::Settings& settings) {
  return !ModelName(settings).empty();
}

Result<ResolvedModel> FetchNamedModel(const options::Settings& settings, const std::string& name,
                                      const std::string& revision, ModelPart part, bool update,
                                      const DownloadHooks& hooks) {
  FetchOptions how{.model = {.argument = name}, .part = part, .update = update};
  how.model.revision = revision;
  how.model.download_dir = settings.TextOr("download-dir");
  how.token = settings.TextOr("hf-token");
  if (how.token == "true") how.token.clear();  // the flag has no value: use the stored token
  how.before_download = hooks.before;
  ProgressBar bar("downloading");
  how.on_progress = [&](const FetchProgress& progress) {
    bar.Update(progress.done, progress.total);
    if (hooks.on_progress) hooks.on_progress(progress);
  };
  auto resolved = FetchModel(how);
  bar.Finish();
  return resolved;
}

ModelArgument NamedModel(const options::Settings& settings) {
  ModelArgument model = NamesOf(ModelName(settings));
  // Replaces the URL of a model's page by the model id.
  const auto place = FindModelPlace({.argument = model.name}, HubEnvironment::OfProcess());
  if (place && place->name != model.name) model.as_given = model.name = place->name;
  return model;
}

namespace {

Result<ModelArgument> ResolvePart(const options::Settings& settings, std::string name,
                                  ModelPart part, const DownloadHooks& hooks) {
  ModelArgument model = NamesOf(std::move(name));
  if (model.name.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "which model? Give a folder or a model id as first word after the command",
                "model");
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(model.name, error))
    RETURN_IF_ERROR(RefuseForeignFormat(model.name));
  const std::string revision = settings.TextOr("revision");
  auto found = FetchNamedModel(settings, model.name, revision, part, /*update=*/false, hooks);
  if (!found) {
    Error problem = std::move(found).error();
    if (const std::string near = NearModelFolder(model.name); !near.empty())
      problem.message += fmt::format("; did you mean {}?", near);
    return tl::unexpected<Error>(std::move(problem));
  }
  const ResolvedModel resolved = *std::move(found);
  if (resolved.name != model.name) model.name = model.as_given = resolved.name;
  model.folder = resolved.folder;
  model.tokenizer_folder = model.folder;
  if (settings.Given("tokenizer") || settings.Given("tokenizer-revision")) {
    ASSIGN_OR_RETURN(const ResolvedModel tokenizer,
                     FetchNamedModel(settings, settings.TextOr("tokenizer", model.name),
                                     settings.TextOr("tokenizer-revision", revision),
                                     ModelPart::kTokenizer, /*update=*/false, hooks));
    model.tokenizer_folder = tokenizer.folder;
  }
  return model;
}

}  // namespace

Result<ModelArgument> ResolveModelArgument(const options::Settings& settings,
                                           const DownloadHooks& hooks) {
  return ResolveModelArgument(settings, ModelName(settings), hooks);
}

Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, ModelPart part) {
  return ResolvePart(settings, ModelName(settings), part, {});
}

Result<ModelArgument> ResolveModelArgument(const options::Settings& settings, std::string name,
                                           const DownloadHooks& hooks) {
  const bool needs_weights =
      settings.TextOr("load-format") != "dummy" && settings.TextOr("simulate").empty();
  const ModelPart part = needs_weights ? ModelPart::kAll : ModelPart::kAllButWeights;
  return ResolvePart(settings, std::move(name), part, hooks);
}

ModelOptions::ActivationRounding ActivationRoundingOf(const options::Settings& settings,
                                                      std::string_view option) {
  return ValueOf(settings, option, kActivationFormats);
}

LoadQuantization LoadQuantizationOf(const options::Settings& settings) {
  const std::string head = settings.TextOr("head-format");
  return {.weights = settings.TextOr("quantization"), .head = head == "auto" ? "" : head};
}

namespace {

Result<PoolingOptions> PoolingOptionsOf(const options::Settings& settings) {
  PoolingOptions pooling;
  pooling.runner = ValueOf(settings, "runner", kRunners);
  pooling.convert = ValueOf(settings, "convert", kConversions);
  const auto text = settings.Text("pooler-config");
  if (!text) return pooling;
  ASSIGN_OR_RETURN(pooling.pooler, json::Parse(*text));
  if (pooling.pooler.is_object()) return pooling;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--pooler-config: expected a JSON object, found {}", *text),
              "pooler-config");
}

}  // namespace

EnginesHere EnginesOf(const options::Settings& settings) {
  if (const auto rank = settings.Integer("data-parallel-rank"))
    return {.count = 1, .first = static_cast<int>(*rank)};
  const int64_t size = settings.Integer("data-parallel-size").value_or(1);
  return {.count = static_cast<int>(settings.Integer("data-parallel-size-local").value_or(size)),
          .first = static_cast<int>(settings.Integer("data-parallel-start-rank").value_or(0))};
}

Result<std::optional<CacheEventSettings>> CacheEventsOf(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const json::Value object,
                   json::Parse(settings.TextOr("kv-events-config", "{}")));
  return ReadCacheEventSettings(object);
}

Result<EngineConfig> MakeEngineConfig(const options::Settings& settings, const ModelArgument& model,
                                      const DownloadHooks& hooks, bool are_processes) {
  EngineConfig config;
  ASSIGN_OR_RETURN(config.simulation, SimulationOf(settings));
  const bool dummy_weights =
      settings.TextOr("load-format") == "dummy" || config.simulation.is_given();
  if (!dummy_weights) RETURN_IF_ERROR(RefuseForeignFormat(model.folder));
  config.model_folder = model.folder;
  ASSIGN_OR_RETURN(config.config_overrides, ConfigOverrides(settings));
  config.load_quantization = LoadQuantizationOf(settings);
  // Reports a model that cannot be quantized in this way before the engine is created.
  if (!config.load_quantization.empty()) {
    const auto described =
        LoadModelConfig(model.folder, config.config_overrides, config.load_quantization);
    if (!described) return tl::unexpected<Error>(described.error());
  }
  ASSIGN_OR_RETURN(config.generation_config_folder, GenerationConfigFolder(settings, hooks));
  ASSIGN_OR_RETURN(config.pooling, PoolingOptionsOf(settings));
  config.dtype = ValueOf(settings, "dtype", kDtypes);
  config.kv_cache_dtype = ValueOf(settings, "kv-cache-dtype", kCacheDtypes);
  config.activation_format = ActivationRoundingOf(settings, "activation-format");
  config.dummy_weights = dummy_weights;
  config.allow_nonfinite = settings.Flag("allow-nonfinite");
  config.profile_ops = settings.Flag("profile-ops");
  config.seed = static_cast<uint64_t>(settings.Integer("seed").value_or(0));
  config.block_size = static_cast<int>(*settings.Integer("block-size"));
  // auto and -1 mean the same as no option.
  if (const auto length = settings.Integer("max-model-len"); length && *length != -1) {
    if (*length < 1) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--max-model-len: expected at least 1, auto or -1, found {}", *length),
          "max-model-len");
    }
    config.max_model_len = *length;
  }
  if (settings.Given("max-num-seqs")) config.max_num_seqs = settings.Integer("max-num-seqs");
  if (settings.Given("max-num-batched-tokens"))
    config.max_num_batched_tokens = settings.Integer("max-num-batched-tokens");
  if (const auto scheduled = settings.Integer("max-num-scheduled-tokens")) {
    config.max_num_batched_tokens =
        std::min(config.max_num_batched_tokens.value_or(*scheduled), *scheduled);
  }
  config.enable_prefix_caching = settings.Flag("enable-prefix-caching");
  config.enable_chunked_prefill = settings.Flag("enable-chunked-prefill");
  config.async_scheduling = settings.Flag("async-scheduling");
  ASSIGN_OR_RETURN(config.graphs, GraphsOf(settings, BuiltWithCuda() || BuiltWithHip()));
  config.scheduling_policy = ValueOf(settings, "scheduling-policy", kPolicies);
  config.ageing.level_us = std::llround(1e6 * *settings.Number("priority-ageing-seconds"));
  config.ageing.max_levels = *settings.Integer("priority-ageing-levels");
  config.long_prefill_token_threshold = *settings.Integer("long-prefill-token-threshold");
  ASSIGN_OR_RETURN(Speculation speculation, SpeculationOf(settings, hooks, are_processes));
  config.speculation = speculation.config;
  config.draft = std::move(speculation.draft);
  if (config.draft.is_given() && !config.draft.is_head()) {
    RETURN_IF_ERROR(CheckDraftTokens(model.tokenizer_folder, config.draft.folder));
  }
  config.memory_utilization = settings.Number("gpu-memory-utilization");
  config.utilization_of_rest = settings.dialect() == options::Dialect::kTrtllm;
  config.kv_cache_bytes = settings.Integer("kv-cache-memory-bytes");
  config.num_blocks_override = settings.Integer("num-gpu-blocks-override");
  config.state_cache_bytes = settings.Integer("state-cache-memory");
  config.state_snapshot_interval = *settings.Integer("mamba-block-size");
  config.request_memory_bytes = settings.Integer("request-memory-bytes");
  config.offload.ram_bytes =
      std::llround(settings.Number("kv-offloading-size").value_or(0) * 1024 * 1024 * 1024);
  config.offload.folder = settings.TextOr("kv-offloading-path");
  config.offload.disk_bytes = *settings.Integer("kv-offloading-disk-size");
  config.offload.disk_bytes_per_second = *settings.Integer("kv-offloading-write-rate");
  config.num_threads = static_cast<int>(*settings.Integer("threads"));
  config.cpu_isa = ValueOf(settings, "cpu-isa", kIsas);
  if (settings.TextOr("arithmetic") == "portable") config.cpu_isa = kernels::Isa::kPortable;
  config.device = ValueOf(settings, "device", kDevices);
  // Portable kernels run only on the CPU; results of a GPU would have different bits.
  if (config.cpu_isa == kernels::Isa::kPortable && config.device == DeviceChoice::kAuto)
    config.device = DeviceChoice::kCpu;
  config.batch_invariant = settings.Flag("batch-invariant");
  config.fast_accumulation = settings.Flag("fast-accumulation");
  config.exchanges_by_nccl = settings.Flag("disable-custom-all-reduce");
  config.tensor_parallel_size = static_cast<int>(*settings.Integer("tensor-parallel-size"));
  config.pipeline_parallel_size = static_cast<int>(*settings.Integer("pipeline-parallel-size"));
  // If no parallel size is given, each engine uses its simulated devices for tensor parallelism.
  if (config.simulation.is_given() && !settings.Given("tensor-parallel-size") &&
      !settings.Given("pipeline-parallel-size")) {
    const int engines = std::max(1, EnginesOf(settings).count);
    config.tensor_parallel_size = std::max(1, config.simulation.count / engines);
  }
  config.exact_ranks = settings.TextOr("tensor-parallel-mode") == "exact";
  const EnginesHere engines = EnginesOf(settings);
  config.data_parallel_size = engines.count;
  config.first_engine = engines.first;
  ASSIGN_OR_RETURN(const int64_t max_images, MaxImagesOf(settings.TextOr("limit-mm-per-prompt")));
  config.takes_images = !settings.Flag("language-model-only") && max_images > 0;
  ASSIGN_OR_RETURN(config.adapters, AdaptersOf(settings));
  return config;
}

namespace {

void AddMediaOptions(const options::Settings& settings, ServerConfig& config) {
  MediaConfig& media = config.media;
  for (const std::string& host : settings.List("allowed-media-domains"))
    media.fetch.hosts.push_back(AsciiLower(host));
  media.fetch.timeout_seconds = *settings.Number("media-fetch-timeout");
  media.fetch.max_bytes = static_cast<uint64_t>(*settings.Integer("max-request-bytes"));
  if (!settings.Flag("allow-media-redirects")) media.fetch.max_redirects = 0;
  const int64_t pixels = *settings.Integer("max-image-pixels");
  if (pixels > 0) media.max_pixels = std::min(media.max_pixels, pixels);
  media.local_path = settings.TextOr("allowed-local-media-path");
  media.limits = settings.TextOr("limit-mm-per-prompt");
  media.io_settings = settings.TextOr("media-io-kwargs");
  media.processor_overrides = settings.TextOr("mm-processor-kwargs");
  media.cache_bytes =
      static_cast<int64_t>(*settings.Number("mm-processor-cache-gb") * (int64_t{1} << 30));
  media.text_only = settings.Flag("language-model-only");
}

}  // namespace

ServerConfig MakeServerConfig(const options::Settings& settings, const ModelArgument& model) {
  ServerConfig config;
  config.model_argument = model.name;
  config.api_keys = settings.List("api-key");
  config.otlp_traces_endpoint = settings.TextOr("otlp-traces-endpoint");
  config.chat_template = settings.TextOr("chat-template");
  config.tokenizer_mode = settings.TextOr("tokenizer-mode", "auto");
  config.chat_template_content_format = settings.TextOr("chat-template-content-format");
  config.default_chat_template_kwargs = settings.TextOr("default-chat-template-kwargs");
  if (const auto efforts = json::Parse(settings.TextOr("reasoning-effort-map", "{}"))) {
    for (const auto& [effort, word] : efforts->as_object())
      config.reasoning_efforts[effort] = word.as_string();
  }
  config.max_logprobs = static_cast<int>(*settings.Integer("max-logprobs"));
  config.generation_config = settings.TextOr("generation-config");
  config.override_generation_config = settings.TextOr("override-generation-config");
  config.priority_scheduling =
      ValueOf(settings, "scheduling-policy", kPolicies) != SchedulingPolicy::kFcfs;
  config.logprobs_mode = settings.TextOr("logprobs-mode");
  config.enable_prefix_caching = settings.Flag("enable-prefix-caching");
  config.memory_utilization = settings.Number("gpu-memory-utilization");
  config.num_blocks_override = settings.Integer("num-gpu-blocks-override");
  AddMediaOptions(settings, config);
  config.dialect = ApiDialectOf(settings.dialect());
  config.version = VersionIn(settings.dialect());
  return config;
}

namespace {

void AddLogOptions(const options::Settings& settings, ServerConfig& config) {
  const std::string http_level = settings.TextOr("uvicorn-log-level");
  const bool quiet = http_level == "warning" || http_level == "error" || http_level == "critical";
  config.disable_access_log = quiet || settings.Flag("disable-uvicorn-access-log");
  const std::string paths = settings.TextOr("disable-access-log-for-endpoints");
  for (std::string_view path : options::Split(paths, ','))
    config.quiet_access_paths.emplace_back(path);
  config.log_requests = settings.Flag("enable-log-requests");
  config.log_outputs = settings.Flag("enable-log-outputs");
  config.max_log_length = settings.Integer("max-log-len").value_or(-1);
  config.disable_log_stats = settings.Flag("disable-log-stats");
  config.aggregate_engine_logging = settings.Flag("aggregate-engine-logging");
  config.log_stats_seconds = *settings.Number("log-stats-interval");
}

TlsConfig TlsOf(const options::Settings& settings) {
  TlsConfig tls;
  tls.certificate_file = settings.TextOr("ssl-certfile");
  tls.key_file = settings.TextOr("ssl-keyfile");
  tls.client_ca_file = settings.TextOr("ssl-ca-certs");
  tls.client_certificates =
      static_cast<TlsConfig::ClientCertificates>(*settings.Integer("ssl-cert-reqs"));
  tls.ciphers = settings.TextOr("ssl-ciphers");
  tls.refresh = settings.Flag("enable-ssl-refresh");
  return tls;
}

void AddLimits(const options::Settings& settings, ServerConfig& config) {
  config.limit_requests_per_minute = *settings.Integer("limit-requests-per-minute");
  config.limit_tokens_per_minute = *settings.Integer("limit-tokens-per-minute");
  config.limit_concurrent_requests = *settings.Integer("limit-concurrent-requests");
  config.max_stop_strings = static_cast<int>(*settings.Integer("max-stop-strings"));
  config.max_completion_prompts = static_cast<int>(*settings.Integer("max-completion-prompts"));
  config.max_n = static_cast<int>(*settings.Integer("max-n-sequences"));
  config.max_bad_words = static_cast<int>(*settings.Integer("max-num-bad-words"));
}

// Checks the keys of --weight-transfer-config that concern uploads of tensors.
Status CheckUploads(const json::Value& object, std::string_view backend) {
  const auto refuse = [](std::string_view what) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--weight-transfer-config: {}", what),
                "weight-transfer-config");
  };
  for (const auto& [key, value] : object.as_object()) {
    if (key == "backend") continue;
    if (key != "folder" && key != "max_bytes")
      return refuse(
          fmt::format("the key \"{}\" is unknown; known are backend, folder and max_bytes", key));
    if (backend != "http") return refuse(fmt::format("\"{}\" is only for the backend http", key));
    if (key == "folder" && !(value.is_string() && value.as_string().starts_with('/')))
      return refuse("expected an absolute path as \"folder\"");
    if (key == "max_bytes" && !(value.is_integer() && value.as_integer() > 0))
      return refuse("expected a number of bytes above 0 as \"max_bytes\"");
  }
  return {};
}

void AddUploads(const options::Settings& settings, ServerConfig& config) {
  const Result<json::Value> object = json::Parse(settings.TextOr("weight-transfer-config"));
  if (!object || !object->is_object()) return;
  const json::Value* const backend = object->Find("backend");
  config.takes_weight_uploads =
      backend != nullptr && backend->is_string() && backend->as_string() == "http";
  if (const json::Value* const folder = object->Find("folder");
      folder != nullptr && folder->is_string())
    config.weight_upload_folder = folder->as_string();
  if (const json::Value* const bytes = object->Find("max_bytes");
      bytes != nullptr && bytes->is_integer())
    config.max_weight_upload_bytes = static_cast<uint64_t>(bytes->as_integer());
}

}  // namespace

Status AddServeOptions(const options::Settings& settings, EngineConfig& config) {
  config.enable_sleep_mode = settings.Flag("enable-sleep-mode");
  config.enable_weight_updates = settings.Given("weight-transfer-config");
  if (!config.enable_weight_updates) return {};
  ASSIGN_OR_RETURN(const json::Value object,
                   json::Parse(settings.TextOr("weight-transfer-config")));
  const json::Value* const backend = object.Find("backend");
  const std::string name =
      backend != nullptr && backend->is_string() ? backend->as_string() : "nccl";
  if (name == "disk" || name == "http") return CheckUploads(object, name);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("--weight-transfer-config: the backend {} sends tensors between devices, "
                          "which this server cannot receive; use {{\"backend\": \"disk\"}} and "
                          "send folders, or {{\"backend\": \"http\"}} and send safetensors",
                          name),
              "weight-transfer-config");
}

void AddServeOptions(const options::Settings& settings, ServerConfig& config) {
  // Invalid settings are reported when the engine's configuration is made.
  if (const auto simulation = SimulationOf(settings); simulation && simulation->is_given()) {
    config.simulated = SimulatedName(*simulation);
    config.simulate_speed = simulation->speed;
  }
  AddLogOptions(settings, config);
  AddLimits(settings, config);
  config.host = settings.TextOr("host");
  config.port = static_cast<uint16_t>(*settings.Integer("port"));
  config.uds = settings.TextOr("uds");
  config.tls = TlsOf(settings);
  config.served_model_names = settings.List("served-model-name");
  config.root_path = settings.TextOr("root-path");
  config.api_key_file = settings.TextOr("api-key-file");
  config.protect_all = settings.Flag("protect-all");
  config.allowed_origins = settings.List("allowed-origins");
  config.allowed_methods = settings.List("allowed-methods");
  config.allowed_headers = settings.List("allowed-headers");
  config.allow_credentials = settings.Flag("allow-credentials");
  config.max_body_bytes = static_cast<uint64_t>(*settings.Integer("max-request-bytes"));
  config.max_header_bytes =
      static_cast<uint32_t>(*settings.Integer("h11-max-incomplete-event-size"));
  config.max_connections = static_cast<int>(*settings.Integer("max-connections"));
  config.max_pending_requests = static_cast<int>(*settings.Integer("max-num-queued-reqs"));
  config.keep_alive_seconds = *settings.Number("timeout-keep-alive");
  config.listen_when_ready = settings.Flag("listen-when-ready");
  config.header_timeout_seconds = *settings.Number("timeout-header");
  config.body_timeout_seconds = *settings.Number("timeout-body");
  config.write_timeout_seconds = *settings.Number("timeout-write");
  config.io_threads = static_cast<int>(*settings.Integer("api-server-count"));
  config.worker_threads = static_cast<int>(*settings.Integer("renderer-num-workers"));
  config.trust_request_chat_template = settings.Flag("trust-request-chat-template");
  config.response_role = settings.TextOr("response-role");
  config.return_tokens_as_token_ids = settings.Flag("return-tokens-as-token-ids");
  config.enable_prompt_tokens_details = settings.Flag("enable-prompt-tokens-details");
  config.enable_force_include_usage = settings.Flag("enable-force-include-usage");
  config.enable_request_id_headers = settings.Flag("enable-request-id-headers");
  config.enable_server_load_tracking = settings.Flag("enable-server-load-tracking");
  config.enable_tokenizer_info_endpoint = settings.Flag("enable-tokenizer-info-endpoint");
  config.enable_scale_out = settings.Flag("enable-scale-out");
  config.enable_prompt_embeds = settings.Flag("enable-prompt-embeds");
  config.enable_docs = !settings.Flag("disable-fastapi-docs");
  config.enable_web = !settings.Flag("disable-web");
  config.runtime_lora = settings.Flag("allow-runtime-lora-updating");
  if (config.runtime_lora) config.lora_resolver_folder = settings.TextOr("lora-resolver-cache-dir");
  config.dev_mode = settings.Flag("dev-mode");
  config.enable_response_store = settings.Flag("enable-response-store");
  config.response_store_bytes = static_cast<uint64_t>(*settings.Integer("response-store-bytes"));
  config.response_store = settings.TextOr("response-store");
  config.enable_per_request_metrics = settings.Flag("enable-per-request-metrics");
  config.enable_sleep_mode = settings.Flag("enable-sleep-mode");
  config.sleep_idle_seconds = *settings.Number("sleep-idle-seconds");
  config.refuses_while_asleep = settings.TextOr("sleep-requests") == "refuse";
  config.enable_weight_updates = settings.Given("weight-transfer-config");
  if (config.enable_weight_updates) AddUploads(settings, config);
  config.sse_keep_alive_seconds = *settings.Number("sse-keep-alive-interval");
  config.stream_interval = static_cast<int>(*settings.Integer("stream-interval"));
  config.fingerprint_mode = settings.TextOr("fingerprint-mode");
  config.fingerprint_value = settings.TextOr("fingerprint-value");
  config.skip_model_name_validation = settings.Flag("skip-model-name-validation");
  config.enable_auto_tool_choice = settings.Flag("enable-auto-tool-choice");
  config.tool_call_parser = settings.TextOr("tool-call-parser");
  config.exclude_tools_when_tool_choice_none = settings.Flag("exclude-tools-when-tool-choice-none");
  config.tool_strict_level = settings.TextOr("tool-strict-level");
  config.reasoning_parser = settings.TextOr("reasoning-parser");
  if (const auto constraints = json::Parse(settings.TextOr("structured-outputs-config", "{}"))) {
    const auto is_set = [&](std::string_view key) {
      const json::Value* value = constraints->Find(key);
      return value != nullptr && value->is_bool() && value->as_bool();
    };
    config.json_without_whitespace = is_set("disable_any_whitespace");
    config.constrain_reasoning = is_set("enable_in_reasoning");
  }
  config.enable_iteration_stats = settings.Flag("enable-iter-perf-stats");
}

}  // namespace sluice::cli
