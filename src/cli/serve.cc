#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/version.h"

namespace sluice::cli {
namespace {

// What was not left at its default, as scripts and bug reports want it.
void LogSettings(const options::Settings& settings) {
  std::string text;
  for (const options::Assignment* given : settings.given()) {
    const std::string value =
        given->option->secret ? "***" : fmt::format("{}", fmt::join(given->words, " "));
    text += fmt::format("{}{}={} ({})", text.empty() ? "" : ", ", given->option->name, value,
                        given->origin);
  }
  if (!text.empty()) LOG_INFO("serve", "non-default options: {}", text);
}

void LogReady(const EngineInfo& info, const ServerConfig& config, uint16_t port, double seconds) {
  const int64_t cache_tokens = info.num_blocks * info.block_size;
  LOG_INFO("serve", "{} on {} with {} threads, {} weights, {} KV cache", info.model.architecture,
           info.isa, info.num_threads, info.dtype, info.kv_cache_dtype);
  LOG_INFO("serve", "KV cache size: {} tokens ({} blocks of {}, {})", cache_tokens, info.num_blocks,
           info.block_size, FormatBytes(info.kv_bytes));
  LOG_INFO("serve", "Maximum concurrency for {} tokens per request: {:.2f}x", info.max_model_len,
           static_cast<double>(cache_tokens) / static_cast<double>(info.max_model_len));
  const std::string name =
      config.served_model_names.empty() ? config.model_argument : config.served_model_names[0];
  LOG_INFO("serve", "serving {} at http://{}:{}, ready in {:.1f} s", name, config.host, port,
           seconds);
}

}  // namespace

Result<int> RunServe(const options::Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  BlockSignals(kWatched);
  IgnoreClosedPipes();
  LOG_INFO("serve", "sluice {} (commit {})", Version(), Commit());
  LogSettings(settings);
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(EngineConfig engine_config, MakeEngineConfig(settings, model));
  engine_config.drain_seconds = *settings.Number("shutdown-timeout");
  ServerConfig server_config = MakeServerConfig(settings, model);
  AddServeOptions(settings, server_config);

  ASSIGN_OR_RETURN(const std::unique_ptr<Serving> serving, Serving::Bind(server_config));
  // Before the model is there nothing runs that would have to finish.
  std::mutex mutex;
  bool loaded = false;
  SignalWatcher watcher([&](int) {
    const std::lock_guard lock(mutex);
    if (!loaded) {
      LOG_INFO("serve", "stopped while loading");
      std::fflush(nullptr);
      std::_Exit(0);
    }
    LOG_INFO("serve", "draining: new requests are refused, running ones may finish within {} s",
             engine_config.drain_seconds);
    serving->server().BeginDrain();
  });
  RETURN_IF_ERROR(serving->Load(engine_config, model, /*quiet=*/false));
  {
    const std::lock_guard lock(mutex);
    loaded = true;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  LogReady(serving->engine().info(), server_config, serving->server().port(), seconds);
  // Scripts wait for these very words, whatever the log level.
  PrintError("Application startup complete.\n");
  return serving->server().Run();
}

}  // namespace sluice::cli
