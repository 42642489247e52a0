#include "server/api/context/sleep_control.h"

#include <algorithm>
#include <utility>

#include "base/firewall.h"
#include "base/log.h"

namespace sluice {
namespace {

// An answered request may take a moment to leave the engine, so sleeping is retried.
constexpr int kTriesToSleep = 500;
constexpr std::chrono::milliseconds kTimeBetweenTriesToSleep(10);

}  // namespace

void SleepControl::Sleep(std::shared_ptr<const ModelContext> model, int level, bool aborts,
                         Done done) {
  Begin(std::move(model), level, aborts, /*until_request=*/false, std::move(done));
}

void SleepControl::SleepUntilRequest(std::shared_ptr<const ModelContext> model) {
  Begin(std::move(model), 1, /*aborts=*/false, /*until_request=*/true, [](const Status& status) {
    if (!status) LOG_WARNING("server", "cannot sleep: {}", status.error().message);
  });
}

void SleepControl::Begin(std::shared_ptr<const ModelContext> model, int level, bool aborts,
                         bool until_request, Done done) {
  const std::shared_ptr<SleepControl> self = shared_from_this();
  const auto give_back = [self, model, level, done = std::move(done)] {
    const Status status = self->GiveBack(*model, level);
    done(status);
  };
  {
    const MutexLock lock(mutex_);
    sleeping_ = true;
    until_request_ = until_request;
    metrics_->SetSleeping(true);
    if (until_request) {
      active_->OnHeld([weak = weak_from_this(), model] {
        if (const auto control = weak.lock()) control->OnHeld(model);
      });
    }
    active_->Pause([self, give_back] { self->pool_->Submit(give_back); });
  }
  if (aborts) active_->AbortRunning();
}

Status SleepControl::GiveBack(const ModelContext& model, int level) {
  const MutexLock memory(memory_mutex_);
  if (!sleeping_) return {};  // was woken meanwhile
  Status status;
  if (level == 0) {
    model.engine->ResetPrefixCache();
    return status;
  }
  for (int i = 0; i < kTriesToSleep; ++i) {
    status = model.engine->Sleep(/*drops_files=*/level == 2);
    if (status || status.error().code != ErrorCode::kUnavailable) break;
    std::this_thread::sleep_for(kTimeBetweenTriesToSleep);
  }
  if (!status) {
    const MutexLock lock(mutex_);
    SetAwake();
  }
  return status;
}

void SleepControl::SetAwake() {
  sleeping_ = false;
  until_request_ = is_waking_ = false;
  metrics_->SetSleeping(false);
  active_->OnHeld(nullptr);
  active_->Resume();
}

Result<bool> SleepControl::WakeUp(const ModelContext& model, bool weights, bool cache) {
  const MutexLock memory(memory_mutex_);
  if (!model.engine->residency().complete()) RETURN_IF_ERROR(model.engine->WakeUp(weights, cache));
  if (!model.engine->residency().complete()) return false;
  const MutexLock lock(mutex_);
  SetAwake();
  return true;
}

void SleepControl::OnHeld(const std::shared_ptr<const ModelContext>& model) {
  {
    const MutexLock lock(mutex_);
    if (!until_request_ || std::exchange(is_waking_, true)) return;
  }
  pool_->Submit([self = shared_from_this(), model] {
    LOG_INFO("server", "a request wakes the server");
    const Result<bool> awake = self->WakeUp(*model, true, true);
    if (awake) return;
    LOG_ERROR("server", "cannot wake up: {}", awake.error().message);
    self->active_->FailHeld(awake.error());
    const MutexLock lock(self->mutex_);
    self->is_waking_ = false;
  });
}

IdleSleep::IdleSleep(double idle_seconds, std::shared_ptr<ActiveRequests> active,
                     std::shared_ptr<SleepControl> control, Model model)
    : active_(std::move(active)), control_(std::move(control)), model_(std::move(model)) {
  if (idle_seconds <= 0) return;
  const auto idle =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(idle_seconds));
  thread_ = StartThread("idle-sleep", [this, idle] { Run(idle); });
}

void IdleSleep::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void IdleSleep::Run(Duration idle) {
  using Clock = std::chrono::steady_clock;
  MutexLock lock(mutex_);
  while (!stopping_) {
    wake_.WaitUntil(lock,
                    Clock::now() + std::clamp<Duration>(idle / 8, std::chrono::milliseconds(20),
                                                        std::chrono::seconds(1)));
    if (stopping_) return;
    lock.Unlock();
    RunGuarded("server", "to fall asleep", [&] {
      const std::shared_ptr<const ModelContext> model = model_();
      const auto idle_since = active_->idle_since();
      if (model == nullptr || control_->sleeping() || active_->paused() || !idle_since ||
          Clock::now() - *idle_since < idle)
        return;
      LOG_INFO("server", "idle: sleeping until the next request");
      control_->SleepUntilRequest(model);
    });
    lock.Lock();
  }
}

}  // namespace sluice
