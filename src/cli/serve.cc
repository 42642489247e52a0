#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <fmt/format.h>

#include "base/log.h"
#include "base/process_memory.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/startup_lines.h"
#include "client/stream_client.h"

namespace sluice::cli {
namespace {

// Time after the drain for the step in progress and for releasing memory.
constexpr std::chrono::seconds kEndTime(60);

// 1048576 as 1,048,576.
std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t place = std::ssize(digits) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), ",");
  return digits;
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
  LOG_INFO("serve", "Starting vLLM server on http://{}:{}", config.host, port);
}

void LogReady(const EngineInfo& info, const ServerConfig& config, uint16_t port, double seconds) {
  const int64_t cache_tokens = info.kv_tokens;
  LOG_INFO("serve", "{} on {} with {} threads, {} weights, {} KV cache", info.model.architecture,
           info.isa, info.num_threads, DtypeName(info.dtype), DtypeName(info.kv_cache_dtype));
  LOG_INFO("serve", "KV cache size: {} tokens ({} blocks of {}, {})", cache_tokens, info.num_blocks,
           info.block_size, FormatBytes(info.kv_bytes));
  LOG_INFO("serve", "Maximum concurrency for {} tokens per request: {:.2f}x", info.max_model_len,
           static_cast<double>(cache_tokens) / static_cast<double>(info.max_model_len));
  const std::string name =
      config.served_model_names.empty() ? config.model_argument : config.served_model_names[0];
  LOG_INFO("serve", "serving {} at http://{}:{}, ready in {:.1f} s", name, config.host, port,
           seconds);
}

// Scripts wait for exactly these lines, at every log level.
void SayReady(options::Dialect dialect) {
  if (dialect == options::Dialect::kSluice) {
    PrintErrorOrDrop("Application startup complete.\n");
    return;
  }
  PrintErrorOrDrop(
      fmt::format("INFO:     Started server process [{}]\n"
                  "INFO:     Waiting for application startup.\n"
                  "INFO:     Application startup complete.\n",
                  getpid()));
}

}  // namespace

Result<int> RunServe(const options::Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  BlockSignals(kWatched);
  IgnoreClosedPipes();
  PrepareProcessMemory();
  UseLogStyleOf(settings.dialect());
  LogStartup(settings);
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(EngineConfig engine_config, MakeEngineConfig(settings, model));
  engine_config.loop.drain_seconds = *settings.Number("shutdown-timeout");
  ServerConfig server_config = MakeServerConfig(settings, model);
  AddServeOptions(settings, server_config);
  // Clients copy the name from the command line, with its trailing slash.
  if (server_config.served_model_names.empty() && model.as_given != model.name)
    server_config.served_model_names = {model.as_given, model.name};

  // Raises the limit of open files: shells allow few, and each connection is one.
  StreamClient::MaxConnections();
  ASSIGN_OR_RETURN(const std::unique_ptr<Serving> serving, Serving::Bind(server_config));
  // While the model is loaded there are no requests to finish: the process may end at once.
  std::mutex mutex;
  bool loaded = false;
  const auto on_signal = [&](int) {
    const std::lock_guard lock(mutex);
    if (!loaded) {
      LOG_INFO("serve", "stopped while loading");
      EndAtOnce(0);
    }
    if (settings.dialect() != options::Dialect::kSluice)
      PrintErrorOrDrop("INFO:     Shutting down\n");
    LOG_INFO("serve", "draining: new requests are refused, running ones may finish within {} s",
             engine_config.loop.drain_seconds);
    serving->server().BeginDrain();
  };
  const SignalWatcher watcher(
      on_signal,
      EndLimit{std::chrono::duration<double>(engine_config.loop.drain_seconds) + kEndTime,
               "a step or the device did not finish in time: the server ends without it"});
  const auto load_start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(serving->Load(engine_config, model, /*quiet=*/false));
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
  if (settings.dialect() != options::Dialect::kSluice) {
    PrintErrorOrDrop(
        fmt::format("INFO:     Waiting for application shutdown.\n"
                    "INFO:     Application shutdown complete.\n"
                    "INFO:     Finished server process [{}]\n",
                    getpid()));
  }
  return code;
}

}  // namespace sluice::cli
