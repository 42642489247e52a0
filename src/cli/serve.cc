#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/log_format.h"
#include "base/process_memory.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/launch_nodes.h"
#include "cli/launch_ranks.h"
#include "cli/progress.h"
#include "cli/rank_facts.h"
#include "cli/rank_process.h"
#include "cli/reload.h"
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
// From a launcher's signal to the news of the rank that it is about.
constexpr std::chrono::milliseconds kTimeToHear(300);
// After a rank is lost, for the requests to fail, and then for their last bytes and for /health.
constexpr std::chrono::seconds kTimeToFail(2);
constexpr std::chrono::seconds kTimeToTell(2);

// 1048576 as 1,048,576.
std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t place = std::ssize(digits) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), ",");
  return digits;
}

std::string AddressOf(const ServerConfig& config, uint16_t port) {
  if (!config.uds.empty()) return "unix:" + config.uds;
  return fmt::format("{}://{}:{}", config.tls.enabled() ? "https" : "http", config.host, port);
}

// The lines of vLLM's log that tools look for.
void LogVllmReady(const EngineInfo& info, const ServerConfig& config, uint16_t port,
                  double load_seconds) {
  const int64_t cache_tokens = info.kv_tokens;
  LOG_INFO("model", "Resolved architecture: {}", info.model.architecture);
  LOG_INFO("model", "Using max model len {}", info.max_model_len);
  LOG_INFO("loader", "Loading weights took {:.2f} seconds", load_seconds);
  LOG_INFO("kv_cache",
           "{} KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
           info.device == DeviceKind::kCuda ? "GPU" : "CPU", Grouped(cache_tokens),
           Grouped(info.max_model_len),
           static_cast<double>(cache_tokens) / static_cast<double>(info.max_model_len));
  LOG_INFO("serve", "Starting vLLM server on {}", AddressOf(config, port));
}

void LogReady(const EngineInfo& info, const ServerConfig& config, uint16_t port, double seconds) {
  const int64_t cache_tokens = info.kv_tokens;
  LOG_INFO("serve", "{} on {} with {} threads, {} weights, {} KV cache", info.model.architecture,
           info.isa, info.num_threads, DtypeName(info.dtype), DtypeName(info.kv_cache_dtype));
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
  LOG_INFO("serve", "serving {} at {}, ready in {:.1f} s", name, AddressOf(config, port), seconds);
}

// Lines that scripts wait for, at every log level. Under the names of other programs they are
// uvicorn's, in its form and where it writes them.
void Say(options::Dialect dialect, std::initializer_list<std::string> lines) {
  const bool is_uvicorn =
      dialect != options::Dialect::kSluice && CurrentLogFormat() == LogFormat::kText;
  for (const std::string& line : lines) {
    if (is_uvicorn) {
      PrintErrorOrDrop(fmt::format("INFO:     {}\n", line));
    } else {
      LogAlways("serve", line);
    }
  }
}

void SayReady(options::Dialect dialect) {
  if (dialect == options::Dialect::kSluice) return Say(dialect, {"Application startup complete."});
  Say(dialect, {fmt::format("Started server process [{}]", getpid()),
                "Waiting for application startup.", "Application startup complete."});
}

void SayEnded(options::Dialect dialect) {
  if (dialect == options::Dialect::kSluice) return;
  Say(dialect, {"Waiting for application shutdown.", "Application shutdown complete.",
                fmt::format("Finished server process [{}]", getpid())});
}

// How ranks are run, where they are more than threads of this process.
struct RankLaunch {
  RankSizes sizes;
  bool is_rank = false;   // a launcher has started this process as one of them
  bool launches = false;  // this process is to start them
};

Result<RankLaunch> PlanLaunch(const options::Settings& settings) {
  RankLaunch plan{.sizes = RankSizesOf(settings)};
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  plan.is_rank = launch && launch->size != 1 && (launch->size > 1 || plan.sizes.num_ranks() > 1);
  const std::string backend = settings.TextOr("distributed-executor-backend");
  const bool are_processes = backend == "mp" || backend == "mpi" || IsOnSeveralNodes(settings);
  const int num_engines = EnginesOf(settings).count;
  if (num_engines > 1 && (plan.is_rank || (plan.sizes.num_ranks() > 1 && are_processes))) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("--data-parallel-size: {} engines share weights within a process, and "
                            "ranks that are processes make one engine; run a server for each "
                            "behind a balancer, with --data-parallel-rank",
                            num_engines),
                "data_parallel_size");
  }
  if (plan.is_rank || plan.sizes.num_ranks() == 1) return plan;
  plan.launches = backend == "mp" || backend == "mpi";
  if (backend == "external_launcher") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--distributed-executor-backend external_launcher: no launcher has "
                            "started this process as one of several; run mpirun -n {} with this "
                            "command, or say mpi to let it start the ranks",
                            plan.sizes.num_ranks()),
                "distributed_executor_backend");
  }
  return plan;
}

// Before processes are started: what config.json alone refuses. A model that is to be downloaded
// is, but for its weights.
Status CheckRankSizes(const options::Settings& settings, const RankSizes& sizes) {
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, ModelPart::kAllButWeights));
  ASSIGN_OR_RETURN(const EngineConfig engine,
                   MakeEngineConfig(settings, model, {}, /*are_processes=*/true));
  ASSIGN_OR_RETURN(const ModelConfig config,
                   LoadModelConfig(engine.model_folder, engine.config_overrides));
  return CheckRanks(config.spec, sizes.tensor_size, sizes.num_stages);
}

// A launcher that sees a rank end asks the others to, sometimes before they have heard why.
bool HasFailedSoon(RankProcess& process) {
  const auto start = std::chrono::steady_clock::now();
  while (process.all().failure().empty()) {
    if (std::chrono::steady_clock::now() - start > kTimeToHear) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// After a rank is lost: every open request has failed soon, /health tells why for a while, then an
// orchestrator has to start the group anew.
void EndWithoutRank(const Engine& engine) {
  const auto start = std::chrono::steady_clock::now();
  while (engine.num_unfinished() > 0 && std::chrono::steady_clock::now() - start < kTimeToFail)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(kTimeToTell);
  EndAtOnce(1);
}

}  // namespace

Result<int> RunServe(const options::Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  BlockSignals(kWatched);
  IgnoreClosedPipes();
  PrepareProcessMemory();
  UseLogStyleOf(settings.dialect());
  ASSIGN_OR_RETURN(const RankLaunch ranks, PlanLaunch(settings));
  if (ranks.launches || (!ranks.is_rank && IsOnSeveralNodes(settings)))
    RETURN_IF_ERROR(CheckRankSizes(settings, ranks.sizes));
  if (!ranks.is_rank && IsOnSeveralNodes(settings))
    return LaunchOnNode(settings, ranks.sizes.num_ranks());
  if (ranks.launches) return LaunchRanks(settings, ranks.sizes.num_ranks());
  std::unique_ptr<RankProcess> process;  // null: ranks are threads of this process, if any
  if (ranks.is_rank) {
    ASSIGN_OR_RETURN(process, RankProcess::Join(settings, ranks.sizes.num_ranks()));
    if (process->all().rank() > 0) return RunServingRank(settings, *process, ranks.sizes);
  }
  LogStartup(settings);
  const ModelArgument named = NamedModel(settings);
  ServerConfig server_config = MakeServerConfig(settings, named);
  AddServeOptions(settings, server_config);
  // Clients copy the name from the command line, with its trailing slash.
  if (server_config.served_model_names.empty() && named.as_given != named.name)
    server_config.served_model_names = {named.as_given, named.name};

  std::unique_ptr<Serving> serving;  // null until it is bound
  // Held while it is bound, and by a signal.
  std::mutex mutex;
  const auto bind = [&]() -> Status {
    if (serving) return {};
    // Raises the limit of open files: shells allow few, and each connection is one.
    StreamClient::MaxConnections();
    const std::lock_guard lock(mutex);
    ASSIGN_OR_RETURN(serving, Serving::Bind(server_config));
    return {};
  };
  const double drain_seconds = *settings.Number("shutdown-timeout");
  // While the model is loaded there are no requests to finish: the process may end at once.
  bool loaded = false;
  const auto drain = [&] {
    const std::lock_guard lock(mutex);
    if (!loaded) {
      LOG_INFO("serve", "stopped while loading");
      if (serving) serving->server().Stop();  // which removes the file of a unix socket
      EndAtOnce(0);
    }
    if (settings.dialect() != options::Dialect::kSluice) Say(settings.dialect(), {"Shutting down"});
    LOG_INFO("serve", "draining: new requests are refused, running ones may finish within {} s",
             drain_seconds);
    serving->server().BeginDrain();
  };
  const auto on_signal = [&](int) {
    // After a failure the process ends by itself, with a code that tells.
    if (!process || !HasFailedSoon(*process)) drain();
  };
  const auto on_hangup = [&] {
    LOG_INFO("serve", "SIGHUP: log level, API keys and certificates are read again");
    ReloadLogLevel(settings);
    Server* server = nullptr;
    {
      // Not held while files are read, which may take long: a drain must not wait for them.
      const std::lock_guard lock(mutex);
      if (serving) server = &serving->server();
    }
    if (server != nullptr) server->Reload();
  };
  const SignalWatcher watcher(
      on_signal,
      EndLimit{std::chrono::duration<double>(drain_seconds) + kEndTime,
               "a step or the device did not finish in time: the server ends without it"},
      on_hangup);
  if (process) {
    process->OnWord([&](std::string_view word) {
      if (word == "drain") drain();
      if (word == "reload") on_hangup();
    });
    process->OnFailure([&](const std::string& reason) {
      LOG_ERROR("serve", "the group of ranks has failed: {}", reason);
      const std::lock_guard lock(mutex);
      if (!loaded) EndAtOnce(1, "error: " + reason + "\n");
      std::thread([&serving] { EndWithoutRank(serving->engine()); }).detach();
    });
  }
  const auto forget = [&process](const void*) {
    if (!process) return;
    process->OnWord(nullptr);
    process->OnFailure(nullptr);
  };
  const std::unique_ptr<const void, decltype(forget)> forget_at_end(&process, forget);
  // A download takes long: the port is open meanwhile, and /health tells how far it is.
  const DownloadHooks hooks{.before = bind, .on_progress = [&](const FetchProgress& progress) {
                              if (serving)
                                serving->server().SetDownload(progress.done, progress.total);
                            }};
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings, hooks));
  ASSIGN_OR_RETURN(EngineConfig engine_config,
                   MakeEngineConfig(settings, model, hooks, /*are_processes=*/process != nullptr));
  engine_config.loop.drain_seconds = drain_seconds;
  RETURN_IF_ERROR(bind());
  const auto load_start = std::chrono::steady_clock::now();
  ProcessRanks processes{.tensor_size = ranks.sizes.tensor_size,
                         .num_stages = ranks.sizes.num_stages};
  if (process) {
    ASSIGN_OR_RETURN(const std::vector<Fact> facts, ModelFacts(engine_config));
    RETURN_IF_ERROR(process->Compare(facts));
    process->BeginSteps();
    processes.all = &process->all();
    processes.here = process->ranks_here();
    LOG_INFO("serve", "rank 0 of {} processes over {}", process->all().size(), process->library());
  }
  RETURN_IF_ERROR(
      serving->Load(engine_config, model, LoadReport::kLog, process ? &processes : nullptr));
  const double load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
  {
    const std::lock_guard lock(mutex);
    loaded = true;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (server_config.dialect == ApiDialect::kVllm)
    LogVllmReady(serving->engine().info(), server_config, serving->server().port(), load_seconds);
  LogReady(serving->engine().info(), server_config, serving->server().port(), seconds);
  SayReady(settings.dialect());
  Result<int> code = serving->server().Run();
  SayEnded(settings.dialect());
  if (process) {
    serving.reset();  // the other ranks hear that there are no more steps
    process->Leave();
  }
  return code;
}

}  // namespace sluice::cli
