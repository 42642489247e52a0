#include "cli/serve_models.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "base/mutex.h"
#include "cli/configs.h"
#include "cli/door_models.h"
#include "cli/drain_delay.h"
#include "cli/reload.h"
#include "cli/serve_lines.h"
#include "cli/signals.h"
#include "cli/startup_lines.h"
#include "client/stream_client.h"
#include "engine/plan_text.h"
#include "options/models_file.h"
#include "server/door/door_server.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Time after the drain for the step in progress and for releasing memory.
constexpr std::chrono::seconds kDoorEndTime(60);
constexpr std::chrono::milliseconds kLookForModels(20);

// Returns the configuration of the port and of routes without a model.
ServerConfig DoorServerConfig(const options::Settings& settings, const DoorMemory& memory) {
  ServerConfig config = MakeServerConfig(settings, ModelArgument());
  AddServeOptions(settings, config);
  config.request_memory_bytes = static_cast<uint64_t>(memory.request_bytes);
  config.runtime_lora = settings.Flag("allow-runtime-lora-updating");
  return config;
}

// Thread safety: one thread calls Run; signals arrive on other threads.
class DoorRun {
 public:
  DoorRun(const options::Settings& settings, std::unique_ptr<DoorServer> server,
          const ServerConfig& config, Clock::time_point start)
      : settings_(settings),
        config_(config),
        start_(start),
        delay_(*settings.Number("drain-delay")),
        drain_seconds_(*settings.Number("shutdown-timeout")),
        server_(std::move(server)) {}

  Result<int> Run(size_t num_models, int64_t budget_bytes) {
    const SignalWatcher watcher(
        [this](int) { Drain(); },
        EndLimit{std::chrono::duration<double>(delay_.seconds() + drain_seconds_) + kDoorEndTime,
                 "a step, a load or the device did not finish in time: the server ends without it"},
        [this] { Reload(); }, [this] { return delay_.Skip(); });
    server_->Start();
    while (!server_->IsReady() && !IsDraining()) std::this_thread::sleep_for(kLookForModels);
    RETURN_IF_ERROR(server_->OpenDoor());
    if (!IsDraining()) {
      LOG_INFO("serve", "all models together may use {}", MemoryText(budget_bytes));
      LOG_INFO("serve", "serving {} models at {}, ready in {:.1f} s", num_models,
               AddressOf(config_, server_->port()),
               std::chrono::duration<double>(Clock::now() - start_).count());
      if (settings_.dialect() == options::Dialect::kSluice) LogNextStep(config_, server_->port());
      SayReady(settings_.dialect());
    }
    const int code = server_->Run();
    SayEnded(settings_.dialect());
    // A load cannot be interrupted, so the process ends without waiting for the load.
    if (server_->IsLoading()) EndAtOnce(code);
    return code;
  }

 private:
  bool IsDraining() {
    const MutexLock lock(mutex_);
    return is_draining_;
  }

  void Drain() {
    delay_.Run([this] { server_->BeginLeaving(); }, [this] { server_->StopAccepting(); });
    if (settings_.dialect() != options::Dialect::kSluice)
      Say(settings_.dialect(), {"Shutting down"});
    LOG_INFO("serve", "draining: new requests are refused, running ones may finish within {} s",
             drain_seconds_);
    server_->BeginDrain();
    const MutexLock lock(mutex_);
    is_draining_ = true;
  }

  void Reload() {
    LOG_INFO("serve", "SIGHUP: reloading the log level, API keys and certificates");
    ReloadLogLevel(settings_);
    server_->Reload();
  }

  const options::Settings& settings_;
  const ServerConfig config_;
  const Clock::time_point start_;
  DrainDelay delay_;
  const double drain_seconds_;
  Mutex mutex_;
  bool is_draining_ GUARDED_BY(mutex_) = false;
  const std::unique_ptr<DoorServer> server_;
};

}  // namespace

Result<int> RunServeModels(const options::Settings& settings, Clock::time_point start) {
  if (HasModelArgument(settings)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--models lists the models to serve, but '{}' is also given: add it to the file",
            NamedModel(settings).as_given),
        "models");
  }
  ASSIGN_OR_RETURN(
      const std::vector<options::ModelEntry> entries,
      options::ReadModelsFile(settings.TextOr("models"), options::kServe, settings.dialect()));
  ASSIGN_OR_RETURN(const DoorMemory memory, DoorMemoryOf(settings));
  ASSIGN_OR_RETURN(std::vector<DoorModel> models, DoorModelsOf(settings, entries, memory));
  DoorConfig config{.server = DoorServerConfig(settings, memory),
                    .budget_bytes = memory.budget_bytes,
                    .wait_seconds = *settings.Number("models-wait"),
                    .max_waiting = *settings.Integer("models-max-waiting")};
  if (settings.Flag("check")) {
    RETURN_IF_ERROR(CheckDoorModels(settings, entries, memory));
    fmt::print("checked: {} models can be served with these options; nothing was started\n",
               models.size());
    return 0;
  }
  LogStartup(settings);
  // Raises the limit of open files: the shell's default is low, and each connection uses one.
  StreamClient::MaxConnections();
  const ServerConfig server_config = config.server;
  ASSIGN_OR_RETURN(std::unique_ptr<DoorServer> server,
                   DoorServer::Create(std::move(config), std::move(models)));
  return DoorRun(settings, std::move(server), server_config, start)
      .Run(entries.size(), memory.budget_bytes);
}

}  // namespace sluice::cli
