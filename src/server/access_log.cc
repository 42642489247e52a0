#include "server/access_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/log_output.h"
#include "base/mutex.h"
#include "server/log_secrets.h"

namespace sluice {
namespace {

constexpr auto kLastLines = std::chrono::seconds(1);
// Longer targets are cut: one may be as long as a request's head.
constexpr size_t kMaxTargetBytes = 2048;

// Patience with a reader that takes nothing: only the end of the process ends the wait.
constexpr auto kPatience = std::chrono::hours(24 * 7);

}  // namespace

struct AccessLog::Queue {
  Mutex mutex;
  CondVar wake, ended;
  std::vector<std::string> lines GUARDED_BY(mutex);
  uint64_t dropped GUARDED_BY(mutex) = 0;
  bool stopping GUARDED_BY(mutex) = false, done GUARDED_BY(mutex) = false;
};

AccessLog::AccessLog(const ServerConfig& config, int file)
    : disabled_(config.disable_access_log),
      quiet_paths_(config.quiet_access_paths),
      api_keys_(config.api_keys),
      queue_(std::make_shared<Queue>()) {
  if (!disabled_) thread_ = std::thread([queue = queue_, file] { Work(queue, file); });
}

AccessLog::~AccessLog() {
  if (!thread_.joinable()) return;
  MutexLock lock(queue_->mutex);
  queue_->stopping = true;
  queue_->wake.NotifyAll();
  const auto deadline = std::chrono::steady_clock::now() + kLastLines;
  while (!queue_->done && queue_->ended.WaitUntil(lock, deadline)) {
  }
  const bool done = queue_->done;
  lock.Unlock();
  if (done) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::string AccessLog::Line(const HttpExchangeRecord& record) const {
  // Before it is cut, for a key may stand at the cut.
  const std::string target = WithoutSecrets(record.target, api_keys_);
  const bool is_long = target.size() > kMaxTargetBytes;
  return fmt::format("INFO:     {} - \"{} {}{} HTTP/{}\" {} {}\n", record.client,
                     PercentEncodeUnsafe(record.method),
                     PercentEncodeUnsafe(std::string_view(target).substr(0, kMaxTargetBytes)),
                     is_long ? "..." : "", record.version, record.status,
                     HttpReason(record.status));
}

void AccessLog::Add(const HttpExchangeRecord& record) {
  if (disabled_) return;
  if (std::find(quiet_paths_.begin(), quiet_paths_.end(), record.path) != quiet_paths_.end())
    return;
  std::string line = Line(record);
  {
    const MutexLock lock(queue_->mutex);
    if (queue_->lines.size() >= kMaxWaiting) {
      ++queue_->dropped;
      return;
    }
    queue_->lines.push_back(std::move(line));
  }
  queue_->wake.NotifyOne();
}

void AccessLog::Work(const std::shared_ptr<Queue>& queue, int file) {
  MutexLock lock(queue->mutex);
  while (true) {
    while (!queue->stopping && queue->lines.empty()) queue->wake.Wait(lock);
    if (queue->lines.empty()) break;
    std::vector<std::string> lines;
    lines.swap(queue->lines);
    const uint64_t dropped = std::exchange(queue->dropped, 0);
    lock.Unlock();
    std::string text;
    for (const std::string& line : lines) text += line;
    if (dropped > 0) text += fmt::format("INFO:     {} lines of this log were dropped\n", dropped);
    WriteLogText(file, text, kPatience);
    lock.Lock();
  }
  queue->done = true;
  queue->ended.NotifyAll();
}

}  // namespace sluice
