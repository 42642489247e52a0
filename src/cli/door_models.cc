#include "cli/door_models.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/list_folder.h"
#include "base/log.h"
#include "checkpoint/weights_digest.h"
#include "cli/adapter_settings.h"
#include "cli/check_settings.h"
#include "cli/configs.h"
#include "cli/recording_options.h"
#include "cli/serving.h"
#include "cli/startup_lines.h"
#include "device/device.h"
#include "engine/plan_text.h"
#include "events/event_publisher.h"
#include "hardware/memory.h"
#include "hub/resolve.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using options::Assignment;
using options::ModelEntry;
using options::Settings;

// Options that apply to the whole server: port, connections, logs, process and instruction set.
constexpr std::string_view kServerOptions =
    "host|port|uds|api-key-file|protect-all|root-path|allowed-origins|allowed-methods|"
    "allowed-headers|allow-credentials|max-request-bytes|request-memory-bytes|"
    "h11-max-incomplete-event-size|max-connections|response-store-bytes|response-store|"
    "limit-requests-per-minute|limit-tokens-per-minute|limit-concurrent-requests|"
    "timeout-keep-alive|timeout-header|timeout-body|timeout-write|check|listen-when-ready|"
    "drain-delay|shutdown-timeout|api-server-count|ssl-certfile|ssl-keyfile|ssl-ca-certs|"
    "ssl-cert-reqs|ssl-ciphers|enable-ssl-refresh|enable-request-id-headers|"
    "enable-server-load-tracking|enable-tokenizer-info-endpoint|enable-scale-out|"
    "disable-fastapi-docs|disable-web|dev-mode|allow-runtime-lora-updating|uvicorn-log-level|"
    "disable-uvicorn-access-log|disable-access-log-for-endpoints|disable-log-stats|"
    "log-stats-interval|log-level|log-format|otlp-traces-endpoint|fail-on-environ-validation|"
    "record|record-size|record-privacy|receipts|receipts-with-tokens|"
    "arithmetic|cpu-isa|"  // kernels are chosen once for the process
    "config|set|models|models-memory|models-wait|models-max-waiting";
// An option that is refused with --models, on the command line and in entries. `why` completes the
// error message.
struct Refused {
  std::string_view option;
  std::string_view why;
};
constexpr Refused kRefusedOptions[] = {
    {"model", "the entry's path determines the model"},
    {"served-model-name", "requests address the model by the entry's name"},
    {"enable-sleep-mode", "models are unloaded when others need their memory"},
    {"sleep-idle-seconds", "models are unloaded when others need their memory"},
    {"weight-transfer-config",
     "new weights would need memory in addition to the old ones, which is not planned; serve only "
     "this model"},
    {"nnodes", "with several models, each is computed only by this process"},
    {"distributed-executor-backend", "with several models, each is computed only by this process"},
    {"data-parallel-rank", "with several models, each is computed only by this process"},
    {"lora-resolver-cache-dir",
     "requests find a model by its adapters' names, and the names in a folder are not known; list "
     "the adapters with lora-modules"},
};
// Options that may be given only in an entry.
constexpr std::string_view kModelsOwnOptions =
    "lora-modules|tokenizer|tokenizer-revision|revision|"
    "kv-events-config|speculative-config";

bool IsOneOf(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = options::Split(words, '|');
  return std::ranges::find(all, word) != all.end();
}

tl::unexpected<Error> BadEntry(const ModelEntry& entry, std::string_view place,
                               std::string_view message) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: model '{}': {}", place, entry.name, message), "models");
}

Result<EngineConfig> EngineConfigOf(const Settings& settings, const ModelArgument& model,
                                    const DownloadHooks& hooks, const DoorMemory& memory,
                                    size_t num_models) {
  ASSIGN_OR_RETURN(EngineConfig config, MakeEngineConfig(settings, model, hooks));
  config.loop.drain_seconds = *settings.Number("shutdown-timeout");
  config.memory_budget_bytes = memory.budget_bytes;
  config.memory_sharers = static_cast<int>(num_models);
  // This limit is only for the model's images. The memory that requests hold is planned for all
  // models together.
  config.request_memory_bytes = std::min(int64_t{64} << 20, memory.budget_bytes / 64);
  return config;
}

// Returns the model's folder, and the names, sizes and modification times of its files.
std::string FilesOf(const std::filesystem::path& folder) {
  std::set<std::string> files;
  std::error_code ignored;
  for (const std::filesystem::path& file : ListFolder(folder, ignored)) {
    files.insert(
        fmt::format("{} {} {}", file.string(), std::filesystem::file_size(file, ignored),
                    std::filesystem::last_write_time(file, ignored).time_since_epoch().count()));
  }
  return fmt::format("{}\n{}", folder.string(), fmt::join(files, "\n"));
}

class EntryLoader final : public ModelLoader {
 public:
  EntryLoader(Settings settings, ServerConfig config, const DoorMemory& memory, size_t num_models)
      : settings_(std::move(settings)),
        config_(std::move(config)),
        memory_(memory),
        num_models_(num_models) {}

  Result<int64_t> Plan(const Progress& downloaded) override {
    const DownloadHooks hooks{.before = nullptr,
                              .on_progress = [&downloaded](const FetchProgress& progress) {
                                downloaded(progress.done, progress.total);
                              }};
    ASSIGN_OR_RETURN(model_, ResolveModelArgument(settings_, hooks));
    ASSIGN_OR_RETURN(engine_, EngineConfigOf(settings_, model_, hooks, memory_, num_models_));
    int64_t bytes = 0;
    Engine::Hooks plan;
    plan.planned_bytes = [&bytes](int64_t planned) { bytes = planned; };
    RETURN_IF_ERROR(Engine::Check(engine_, plan));
    return bytes;
  }

  Result<LoadedModel> Load(std::function<EngineObserver*(int i)> observer_of,
                           Progress loaded) override {
    EngineConfig config = engine_;
    ASSIGN_OR_RETURN(ModelText text, LoadText(config_, config, model_));
    ASSIGN_OR_RETURN(config.pooling.classifier_tokens, ClassifierTokenIds(config, text));
    Engine::Hooks hooks;
    hooks.observer_of = std::move(observer_of);
    hooks.load_progress = std::move(loaded);
    hooks.print_plan = [this](const std::string& line) {
      LOG_INFO("memory", "{}: {}", config_.served_model_names.front(), line);
    };
    ASSIGN_OR_RETURN(const std::optional<CacheEventSettings> events, CacheEventsOf(settings_));
    if (events) {
      hooks.listener_of = [events](int64_t rank) -> Result<std::unique_ptr<CacheListener>> {
        return CacheEventPublisher::Start(*events, rank);
      };
    }
    const bool has_receipts = settings_.Given("receipts");
    if (has_receipts || settings_.Given("record")) TakeDigest(config.model_folder);
    if (has_receipts && !digest_)
      return tl::unexpected<Error>(Error(digest_.error()).In("--receipts"));
    RETURN_IF_ERROR(Record(hooks, text));
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(config, std::move(hooks)));
    ASSIGN_OR_RETURN(text.receipts,
                     ReceiptIssuerOf(settings_, digest_.value_or(""), engine->info()));
    return LoadedModel{std::move(engine), std::move(text)};
  }

 private:
  // Reads all weights, so it is called only once, unless the model's files have changed.
  void TakeDigest(const std::filesystem::path& folder) {
    std::string files = FilesOf(folder);
    if (digest_ && digest_files_ == files) return;
    digest_ = WeightsDigest(folder);
    digest_files_ = std::move(files);
  }

  // With --record, begins a recording of the model's next engine.
  Status Record(Engine::Hooks& hooks, ModelText& text) {
    if (!settings_.Given("record")) return {};
    // The previous engine has been destroyed; this writes its recording to the file.
    recorder_.reset();
    ASSIGN_OR_RETURN(recorder_,
                     StartRecorder(settings_, model_,
                                   RecordingFolder(settings_, config_.served_model_names.front())));
    json::Value facts{json::Value::Object{}};
    facts.Set("weights", digest_ ? json::Value(*digest_) : json::Value());
    recorder_->AddFacts(facts);
    hooks.journal_of = [this](int engine) { return recorder_->journal(engine); };
    text.on_arrival = [recorder = recorder_](std::string_view path, std::string_view body) {
      recorder->OnArrival(path, body);
    };
    return {};
  }

  const Settings settings_;
  const ServerConfig config_;
  const DoorMemory memory_;
  const size_t num_models_;
  ModelArgument model_;  // result of the last Plan()
  EngineConfig engine_;
  Result<std::string> digest_ = Fail(ErrorCode::kInternal, "not computed yet");
  std::string digest_files_;  // FilesOf() before digest_ was computed
  // The recording of the last Load(); outlives the engine, which is destroyed before the next load
  // and before this loader.
  std::shared_ptr<recording::FlightRecorder> recorder_;
};

// Recordings of two models must not be mixed.
Status CheckRecordingFolders(const Settings& settings, const std::vector<ModelEntry>& entries) {
  if (!settings.Given("record")) return {};
  std::map<std::filesystem::path, std::string> folders;  // maps a folder to its model
  for (const ModelEntry& entry : entries) {
    const std::filesystem::path folder = RecordingFolder(settings, entry.name);
    const auto [taken, is_new] = folders.try_emplace(folder, entry.name);
    if (is_new) continue;
    return BadEntry(entry, entry.place,
                    fmt::format("its recordings would be in {}, as those of model '{}': rename one "
                                "of them, or omit --record",
                                folder.string(), taken->second));
  }
  return {};
}

// Reports a missing folder at startup. Its contents are checked when the model is loaded.
Status CheckPath(const ModelEntry& entry) {
  const auto place = FindModelPlace({.argument = entry.path}, HubEnvironment::OfProcess());
  if (!place) return BadEntry(entry, entry.place, "path: " + place.error().message);
  return {};
}

bool ComputesOnDevice(const Settings& settings) {
  const std::string device = settings.TextOr("device");
  if (device == "cpu") return false;
  if (device != "auto") return true;
  if (settings.TextOr("arithmetic") == "portable" || settings.TextOr("cpu-isa") == "portable")
    return false;
  return (BuiltWithCuda() && ListCudaDevices().has_value()) ||
         (BuiltWithHip() && ListHipDevices().has_value());
}

}  // namespace

Result<Settings> SettingsOfEntry(const Settings& settings, const ModelEntry& entry) {
  // The server's API keys apply to models without their own keys. A model's own keys replace the
  // server's keys.
  const bool has_keys = std::ranges::any_of(
      entry.options, [](const Assignment& own) { return own.option->name == "api-key"; });
  std::vector<Assignment> all;
  for (const Assignment& given : settings.assignments()) {
    const std::string_view name = given.option->name;
    const bool is_key = name == "api-key" || name == "api-key-file";
    if (name != "models" && !(is_key && has_keys)) all.push_back(given);
  }
  for (Assignment own : entry.options) {
    const std::string_view name = own.option->name;
    if (IsOneOf(kServerOptions, name)) {
      return BadEntry(entry, own.origin,
                      fmt::format("options: {} belongs to the server, not to a model; give it on "
                                  "the command line or in the file of --config",
                                  name));
    }
    for (const Refused& refused : kRefusedOptions) {
      if (refused.option == name)
        return BadEntry(entry, own.origin, fmt::format("options: {}: {}", name, refused.why));
    }
    // An empty key would open the model to all clients.
    const auto is_blank = [](const std::string& key) {
      return key.find_first_not_of(" \t\r\n") == std::string::npos;
    };
    if (name == "api-key" && (own.words.empty() || std::ranges::any_of(own.words, is_blank))) {
      return BadEntry(entry, own.origin,
                      "options: api-key: expected keys, found an empty one; omit the option to use "
                      "the server's keys");
    }
    own.source = options::Source::kYamlOverFlags;
    all.push_back(std::move(own));
  }
  Assignment served{.option = &options::Find("served-model-name"),
                    .words = {entry.name},
                    .source = options::Source::kYamlOverFlags,
                    .origin = entry.place};
  all.push_back(std::move(served));
  Settings of_entry(all, {entry.path}, settings.dialect());
  for (const auto& check : {options::CheckRefused, CheckSettings}) {
    if (const Status status = check(of_entry); !status)
      return BadEntry(entry, entry.place, "options: " + status.error().message);
  }
  return of_entry;
}

Result<DoorMemory> DoorMemoryOf(const Settings& settings) {
  const MemoryLimits limits = ReadMemoryLimits();
  const auto given = settings.Integer("models-memory");
  if (given && *given > limits.total_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--models-memory: expected at most the {} of this machine{}, found {}",
                            MemoryText(limits.total_bytes), LimitNote(limits), MemoryText(*given)),
                "models-memory");
  }
  if (given && *given > limits.available_bytes) {
    LOG_WARNING("memory", "--models-memory: {} are more than the {} that are free now",
                MemoryText(*given), MemoryText(limits.available_bytes));
  }
  const int64_t all = given.value_or(limits.available_bytes / 10 * 9);
  DoorMemory memory;
  memory.request_bytes =
      settings.Integer("request-memory-bytes").value_or(std::min(int64_t{1} << 30, all / 8));
  memory.budget_bytes = all - memory.request_bytes;
  if (memory.budget_bytes > 0) return memory;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--request-memory-bytes takes all of the {} of --models-memory; lower it",
                          MemoryText(all)),
              "request-memory-bytes");
}

Result<std::vector<DoorModel>> DoorModelsOf(const Settings& settings,
                                            const std::vector<ModelEntry>& entries,
                                            const DoorMemory& memory) {
  for (const Assignment* given : settings.given()) {
    const std::string_view name = given->option->name;
    for (const Refused& refused : kRefusedOptions) {
      if (refused.option == name && name != "model") {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} does not go with --models: {}", given->origin, refused.why),
                    std::string(name));
      }
    }
    if (IsOneOf(kModelsOwnOptions, name)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} applies to one model; set it in the options of the model's entry "
                              "in the --models file",
                              given->origin),
                  std::string(name));
    }
  }
  RETURN_IF_ERROR(CheckRecordingFolders(settings, entries));
  std::map<std::string, std::string> names;  // maps a model or an adapter to its model
  for (const ModelEntry& entry : entries) names[entry.name] = entry.name;
  std::vector<DoorModel> models;
  for (const ModelEntry& entry : entries) {
    ASSIGN_OR_RETURN(Settings of_entry, SettingsOfEntry(settings, entry));
    RETURN_IF_ERROR(CheckPath(entry));
    for (const std::string& line : UnansweredLines(EffectsOf(of_entry)))
      LOG_WARNING("options", "{}: {}", entry.name, line);
    if (ComputesOnDevice(of_entry) && !settings.Given("models-memory")) {
      return BadEntry(entry, entry.place,
                      "it runs on a device: set --models-memory to the device memory that all "
                      "models may use in total");
    }
    DoorModel model;
    model.name = entry.name;
    model.is_pinned = entry.is_pinned;
    model.priority = entry.priority;
    const auto adapters = AdaptersOf(of_entry);
    if (!adapters) return BadEntry(entry, entry.place, adapters.error().message);
    for (const AdapterSource& adapter : adapters->modules) {
      const auto [taken, is_new] = names.try_emplace(adapter.name, entry.name);
      if (!is_new) {
        return BadEntry(entry, entry.place,
                        fmt::format("lora-modules: '{}' is also a name of model '{}'", adapter.name,
                                    taken->second));
      }
      model.adapters.push_back(adapter.name);
    }
    const ModelArgument named = NamedModel(of_entry);
    model.config = MakeServerConfig(of_entry, named);
    AddServeOptions(of_entry, model.config);
    model.config.skip_model_name_validation = false;
    model.loader =
        std::make_unique<EntryLoader>(std::move(of_entry), model.config, memory, entries.size());
    models.push_back(std::move(model));
  }
  return models;
}

Status CheckDoorModels(const Settings& settings, const std::vector<ModelEntry>& entries,
                       const DoorMemory& memory) {
  for (const ModelEntry& entry : entries) {
    const auto check = [&]() -> Status {
      ASSIGN_OR_RETURN(const Settings of_entry, SettingsOfEntry(settings, entry));
      ASSIGN_OR_RETURN(const ModelArgument model,
                       ResolveModelArgument(of_entry, ModelPart::kAllButWeights));
      ASSIGN_OR_RETURN(const EngineConfig config,
                       EngineConfigOf(of_entry, model, {}, memory, entries.size()));
      Engine::Hooks hooks;
      hooks.planned_bytes = [&](int64_t bytes) {
        fmt::print("{}: takes {} of {}\n", entry.name, MemoryText(bytes),
                   MemoryText(memory.budget_bytes));
      };
      return Engine::Check(config, hooks);
    };
    if (const Status status = check(); !status)
      return tl::unexpected<Error>(Error(status.error()).In("model '" + entry.name + "'"));
  }
  return {};
}

}  // namespace sluice::cli
