#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/process_memory.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/drain_delay.h"
#include "cli/failure_thread.h"
#include "cli/launch_nodes.h"
#include "cli/launch_ranks.h"
#include "cli/progress.h"
#include "cli/rank_facts.h"
#include "cli/rank_process.h"
#include "cli/recording_options.h"
#include "cli/reload.h"
#include "cli/serve_lines.h"
#include "cli/serve_models.h"
#include "cli/serve_rank.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/startup_lines.h"
#include "client/stream_client.h"
#include "parallel/mpi_library.h"

namespace sluice::cli {
namespace {

// Time after the drain for the step in progress and for releasing memory.
constexpr std::chrono::seconds kEndTime(60);
// Maximum time from a launcher's signal until the failed rank's report arrives.
constexpr std::chrono::milliseconds kTimeToHear(300);
// After a rank is lost: first the maximum time for requests to fail, then the time for sending
// their last bytes and for answering /health.
constexpr std::chrono::seconds kTimeToFail(2);
constexpr std::chrono::seconds kTimeToTell(2);

// Formats 1048576 as 1,048,576.
std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t place = std::ssize(digits) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), ",");
  return digits;
}

// Logs the lines of vLLM's log that tools look for.
void LogVllmReady(const EngineInfo& info, const ServerConfig& config, uint16_t port,
                  double load_seconds) {
  const int64_t cache_tokens = info.kv_tokens;
  LOG_INFO("model", "Resolved architecture: {}", info.model.architecture);
  LOG_INFO("model", "Using max model len {}", info.max_model_len);
  LOG_INFO("loader", "Loading weights took {:.2f} seconds", load_seconds);
  LOG_INFO("kv_cache",
           "{} KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
           info.device && IsGpu(*info.device) ? "GPU" : "CPU", Grouped(cache_tokens),
           Grouped(info.max_model_len),
           static_cast<double>(cache_tokens) / static_cast<double>(info.max_model_len));
  LOG_INFO("serve", "Starting vLLM server on {}", AddressOf(config, port));
}

void LogReady(const EngineInfo& info, const ServerConfig& config, uint16_t port, double seconds) {
  const int64_t cache_tokens = info.kv_tokens;
  LOG_INFO("serve", "{} on {} with {} threads, {} weights, {} KV cache", info.model.architecture,
           info.isa, info.num_threads, DtypeName(info.dtype), DtypeName(info.kv_cache_dtype));
  if (!info.simulated.empty()) {
    LOG_WARNING("serve",
                "SIMULATED {} at {:g} times its speed: nothing is computed, and the text of "
                "answers is meaningless",
                info.simulated, config.simulate_speed);
  }
  if (info.tensor_ranks * info.pipeline_stages > 1) {
    LOG_INFO("serve", "{} ranks share each layer, {} divide the layers", info.tensor_ranks,
             info.pipeline_stages);
  }
  if (info.num_engines > 1) {
    LOG_INFO("serve", "engines {} to {} divide the requests; each has a KV cache and steps:",
             info.first_engine, info.first_engine + info.num_engines - 1);
  }
  LOG_INFO("serve", "KV cache size: {} tokens ({} blocks of {}, {})", cache_tokens, info.num_blocks,
           info.block_size, FormatBytes(info.kv_bytes));
  LOG_INFO("serve", "Maximum concurrency for {} tokens per request: {:.2f}x", info.max_model_len,
           static_cast<double>(cache_tokens) / static_cast<double>(info.max_model_len));
  const std::string name =
      config.served_model_names.empty() ? config.model_argument : config.served_model_names[0];
  LOG_INFO("serve", "serving {} at {}, ready in {:.1f} s{}", name, AddressOf(config, port), seconds,
           info.simulated.empty() ? "" : fmt::format(" (simulated {})", info.simulated));
}

// As in trtllm-serve, a folder is served under its last path component, and requests may name any
// model.
void NameAsTrtllm(const options::Settings& settings, const ModelArgument& named,
                  ServerConfig& config) {
  config.skip_model_name_validation = true;
  std::error_code error;
  if (settings.Given("served-model-name") || !std::filesystem::is_directory(named.name, error))
    return;
  std::filesystem::path folder(named.name);
  if (!folder.has_filename()) folder = folder.parent_path();  // given as "folder/"
  if (folder.filename() == "." || folder.filename() == "..")
    folder = std::filesystem::canonical(folder, error);
  if (folder.has_filename()) config.served_model_names = {folder.filename().string()};
}

// The settings for starting ranks that are not threads of this process.
struct RankLaunch {
  RankSizes sizes;
  bool is_rank = false;   // whether an MPI launcher has started this process as a rank
  bool launches = false;  // whether this process starts the ranks
};

Result<RankLaunch> PlanLaunch(const options::Settings& settings) {
  RankLaunch plan{.sizes = RankSizesOf(settings)};
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  plan.is_rank = launch && launch->size != 1 && (launch->size > 1 || plan.sizes.num_ranks() > 1);
  const std::string backend = settings.TextOr("distributed-executor-backend");
  const bool are_processes = backend == "mpi" || IsOnSeveralNodes(settings);
  const int num_engines = EnginesOf(settings).count;
  if (num_engines > 1 && (plan.is_rank || (plan.sizes.num_ranks() > 1 && are_processes))) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--data-parallel-size: {} engines share weights within a process, but "
                            "ranks in separate processes form a single engine; run one server per "
                            "engine behind a load balancer, with --data-parallel-rank",
                            num_engines),
                "data_parallel_size");
  }
  if (plan.is_rank || plan.sizes.num_ranks() == 1) return plan;
  plan.launches = backend == "mpi";
  if (backend == "external_launcher") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--distributed-executor-backend external_launcher: no launcher has "
                            "started this process as one of several; run mpirun -n {} with this "
                            "command, or use mpi to make this command start the ranks",
                            plan.sizes.num_ranks()),
                "distributed_executor_backend");
  }
  return plan;
}

// Checks, before processes are started, all conditions that depend only on config.json. Downloads a
// model except for its weights.
Status CheckRankSizes(const options::Settings& settings, const RankSizes& sizes) {
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, ModelPart::kAllButWeights));
  ASSIGN_OR_RETURN(const EngineConfig engine,
                   MakeEngineConfig(settings, model, {}, /*are_processes=*/true));
  ASSIGN_OR_RETURN(const ModelConfig config,
                   LoadModelConfig(engine.model_folder, engine.config_overrides));
  return CheckRanks(config.spec, sizes.tensor_size, sizes.num_stages);
}

// Returns whether a rank's failure is reported within kTimeToHear. After a rank fails, the launcher
// signals the other ranks, sometimes before they receive the report of the failure.
bool HasFailedSoon(RankProcess& process) {
  const auto start = std::chrono::steady_clock::now();
  while (process.all().failure().empty()) {
    if (std::chrono::steady_clock::now() - start > kTimeToHear) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// After a rank is lost: waits until every open request has failed, lets /health report the cause
// for a while, then ends the process. An orchestrator must restart the group.
void EndWithoutRank(const Engine& engine) {
  const auto start = std::chrono::steady_clock::now();
  while (engine.num_unfinished() > 0 && std::chrono::steady_clock::now() - start < kTimeToFail)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(kTimeToTell);
  EndAtOnce(1);
}

ServerConfig ServerConfigOf(const options::Settings& settings) {
  const ModelArgument named = NamedModel(settings);
  ServerConfig config = MakeServerConfig(settings, named);
  AddServeOptions(settings, config);
  // Clients copy the name from the command line, including its trailing slash.
  if (config.served_model_names.empty() && named.as_given != named.name)
    config.served_model_names = {named.as_given, named.name};
  if (settings.dialect() == options::Dialect::kTrtllm) NameAsTrtllm(settings, named, config);
  return config;
}

// The server of this process, which computes with all ranks or is rank 0 of several processes.
//
// Thread safety: Run by one thread; only this thread creates and destroys serving_. Signals,
// messages from the launcher and failures of ranks arrive on other threads.
class ServeRun {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `process`: null if all ranks are in this process.
  ServeRun(const options::Settings& settings, const RankSizes& sizes,
           std::unique_ptr<RankProcess> process, Time start)
      : settings_(settings),
        sizes_(sizes),
        process_(std::move(process)),
        start_(start),
        delay_(*settings.Number("drain-delay")),
        drain_seconds_(*settings.Number("shutdown-timeout")),
        server_config_(ServerConfigOf(settings)) {}

  // Serves until a signal, the launcher or a failure ends it. Returns the exit code.
  Result<int> Run() {
    const SignalWatcher watcher(
        [this](int) { OnSignal(); },
        EndLimit{std::chrono::duration<double>(delay_.seconds() + drain_seconds_) + kEndTime,
                 "a step or the device did not finish in time: the server ends without it"},
        [this] { Reload(); }, [this] { return delay_.Skip(); });
    std::optional<FailureThread> failure_thread, drain_thread;
    if (process_) {
      failure_thread.emplace([this] { EndWithoutRank(Bound()->engine()); });
      drain_thread.emplace([this] { Drain(); });
      ListenToRanks(*failure_thread, *drain_thread);
    }
    Result<int> code = Serve();
    if (process_) {
      // After this, a failure ends the process immediately.
      process_->OnWord(nullptr);
      process_->OnFailure(nullptr);
    }
    failure_thread.reset();  // ends the process if a rank was lost earlier
    EndServing();            // notifies the other ranks that there are no more steps
    drain_thread.reset();
    if (process_ && code) process_->Leave();
    return code;
  }

 private:
  // Null until the port is bound, and at the end.
  Serving* Bound() {
    const MutexLock lock(mutex_);
    return serving_.get();
  }

  Status Bind() {
    if (Bound() != nullptr) return {};
    // Raises the limit of open files: the shell's default is low, and each connection uses one.
    StreamClient::MaxConnections();
    // Called without the lock: Bind first reads stored responses, which may take long. A signal
    // during this time must end the process immediately. The next start removes a socket file that
    // remains.
    ASSIGN_OR_RETURN(std::unique_ptr<Serving> bound, Serving::Bind(server_config_));
    const MutexLock lock(mutex_);
    serving_ = std::move(bound);
    return {};
  }

  void Leave() {
    {
      const MutexLock lock(mutex_);
      if (!loaded_) return;
    }
    const auto with_server = [this](auto use) {
      const MutexLock lock(mutex_);
      if (serving_) use(serving_->server());
    };
    delay_.Run([&] { with_server([](Server& server) { server.BeginLeaving(); }); },
               [&] { with_server([](Server& server) { server.StopAccepting(); }); });
  }

  void Drain() {
    Leave();
    const MutexLock lock(mutex_);
    if (!loaded_) {
      // While the model is loaded there are no requests to finish, so the process may end
      // immediately.
      LOG_INFO("serve", "stopped while loading");
      if (serving_) serving_->server().Stop();  // removes the file of a unix socket
      EndAtOnce(0);
    }
    if (!serving_) return;  // the server is ending already
    if (settings_.dialect() != options::Dialect::kSluice)
      Say(settings_.dialect(), {"Shutting down"});
    LOG_INFO("serve", "draining: new requests are refused, running ones may finish within {} s",
             drain_seconds_);
    serving_->server().BeginDrain();
  }

  void OnSignal() {
    // After a failure, the process exits with a code that reports the failure.
    if (!process_ || !HasFailedSoon(*process_)) Drain();
  }

  void Reload() {
    LOG_INFO("serve", "SIGHUP: reloading the log level, API keys and certificates");
    ReloadLogLevel(settings_);
    // Reading files may take long. A drain does not wait for a reload, but the end of the server
    // does.
    const MutexLock in_use(reload_mutex_);
    if (Serving* const serving = Bound(); serving != nullptr) serving->server().Reload();
  }

  void EndServing() {
    const MutexLock in_use(reload_mutex_);
    std::unique_ptr<Serving> ended;
    {
      const MutexLock lock(mutex_);
      ended = std::move(serving_);
    }
    delay_.End();
  }

  // The callbacks run on the thread that watches the ranks, so they must not block.
  void ListenToRanks(FailureThread& failure_thread, FailureThread& drain_thread) {
    process_->OnWord([this, &drain_thread](std::string_view word) {
      if (word == "drain") drain_thread.Report();
      if (word == "hurry") delay_.Skip();
      if (word == "reload") kill(getpid(), SIGHUP);
    });
    process_->OnFailure([this, &failure_thread](const std::string& reason) {
      LOG_ERROR("serve", "the group of ranks has failed: {}", reason);
      {
        const MutexLock lock(mutex_);
        if (!loaded_) EndAtOnce(1, "error: " + reason + "\n");
      }
      failure_thread.Report();
    });
  }

  Status Load() {
    // A download takes long. Meanwhile the port is open, and /health reports the progress.
    const DownloadHooks hooks{.before = [this] { return Bind(); },
                              .on_progress =
                                  [this](const FetchProgress& progress) {
                                    if (Serving* const serving = Bound(); serving != nullptr)
                                      serving->server().SetDownload(progress.done, progress.total);
                                  }};
    ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings_, hooks));
    ASSIGN_OR_RETURN(EngineConfig engine_config,
                     MakeEngineConfig(settings_, model, hooks,
                                      /*are_processes=*/process_ != nullptr));
    RETURN_IF_ERROR(AddServeOptions(settings_, engine_config));
    engine_config.loop.drain_seconds = drain_seconds_;
    ASSIGN_OR_RETURN(std::optional<CacheEventSettings> events, CacheEventsOf(settings_));
    RETURN_IF_ERROR(Bind());
    if (events) Bound()->PublishCacheEvents(*std::move(events));
    RETURN_IF_ERROR(UseRecordingOptions(settings_, model, *Bound()));
    const Time load_start = std::chrono::steady_clock::now();
    ProcessRanks processes{.tensor_size = sizes_.tensor_size, .num_stages = sizes_.num_stages};
    if (process_) {
      ASSIGN_OR_RETURN(const std::vector<Fact> facts, ModelFacts(engine_config));
      RETURN_IF_ERROR(process_->Compare(facts));
      process_->BeginSteps();
      processes.all = &process_->all();
      processes.here = process_->ranks_here();
      LOG_INFO("serve", "rank 0 of {} processes over {}", process_->all().size(),
               process_->library());
    }
    RETURN_IF_ERROR(
        Bound()->Load(engine_config, model, LoadReport::kLog, process_ ? &processes : nullptr));
    load_seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
    const MutexLock lock(mutex_);
    loaded_ = true;
    return {};
  }

  Result<int> Serve() {
    RETURN_IF_ERROR(Load());
    Serving& serving = *Bound();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const uint16_t port = serving.server().port();
    if (server_config_.dialect == ApiDialect::kVllm)
      LogVllmReady(serving.engine().info(), server_config_, port, load_seconds_);
    LogReady(serving.engine().info(), server_config_, port, seconds);
    if (settings_.dialect() == options::Dialect::kSluice) LogNextStep(server_config_, port);
    SayReady(settings_.dialect());
    Result<int> code = serving.server().Run();
    SayEnded(settings_.dialect());
    return code;
  }

  const options::Settings& settings_;
  const RankSizes sizes_;
  const std::unique_ptr<RankProcess> process_;
  const Time start_;
  DrainDelay delay_;
  const double drain_seconds_;
  const ServerConfig server_config_;
  double load_seconds_ = 0;
  Mutex mutex_;
  bool loaded_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<Serving> serving_ GUARDED_BY(mutex_);
  Mutex reload_mutex_;  // held while a reload or the end of serving_ uses the server
};

// Implements --check: checks whether the server would start, like `nginx -t`. Starts nothing.
Result<int> CheckServing(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, ModelPart::kAllButWeights));
  ASSIGN_OR_RETURN(EngineConfig engine,
                   MakeEngineConfig(settings, model, {}, /*are_processes=*/false));
  RETURN_IF_ERROR(AddServeOptions(settings, engine));
  const auto events = CacheEventsOf(settings);
  if (!events) return tl::unexpected(events.error());
  RETURN_IF_ERROR(CheckRecordingOptions(settings));
  RETURN_IF_ERROR(Serving::Check(ServerConfigOf(settings), engine, model));
  fmt::print("checked: {} can be served with these options; nothing was started\n", model.name);
  return 0;
}

}  // namespace

Result<int> RunServe(const options::Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  BlockSignals(kWatched);
  PrepareProcessMemory();
  UseLogStyleOf(settings.dialect());
  if (settings.Given("models")) {
    RETURN_IF_ERROR(CheckRecordingOptions(settings));
    return RunServeModels(settings, start);
  }
  ASSIGN_OR_RETURN(const RankLaunch ranks, PlanLaunch(settings));
  if (settings.Flag("check")) return CheckServing(settings);
  if (ranks.launches || (!ranks.is_rank && IsOnSeveralNodes(settings)))
    RETURN_IF_ERROR(CheckRankSizes(settings, ranks.sizes));
  if (!ranks.is_rank && IsOnSeveralNodes(settings))
    return LaunchOnNode(settings, ranks.sizes.num_ranks());
  if (ranks.launches) return LaunchRanks(settings, ranks.sizes.num_ranks());
  std::unique_ptr<RankProcess> process;
  if (ranks.is_rank) {
    ASSIGN_OR_RETURN(process, RankProcess::Join(settings, ranks.sizes.num_ranks()));
    if (process->all().rank() > 0) return RunServingRank(settings, *process, ranks.sizes);
  }
  LogStartup(settings);
  return ServeRun(settings, ranks.sizes, std::move(process), start).Run();
}

}  // namespace sluice::cli
