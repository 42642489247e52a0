#include "server/access_log.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr auto kLastLines = std::chrono::seconds(1);
// Longer targets are cut: one may be as long as a request's head.
constexpr size_t kMaxTargetBytes = 2048;

// Bypasses the C library's buffer: a thread blocked in it would block the exit of the program.
void WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

struct AccessLog::Queue {
  std::mutex mutex;  // guards what follows
  std::condition_variable wake, ended;
  std::vector<std::string> lines;
  uint64_t dropped = 0;
  bool stopping = false, done = false;
};

AccessLog::AccessLog(const ServerConfig& config, int file)
    : disabled_(config.disable_access_log),
      quiet_paths_(config.quiet_access_paths),
      queue_(std::make_shared<Queue>()) {
  if (!disabled_) thread_ = std::thread([queue = queue_, file] { Work(queue, file); });
}

AccessLog::~AccessLog() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(queue_->mutex);
  queue_->stopping = true;
  queue_->wake.notify_all();
  const bool done = queue_->ended.wait_for(lock, kLastLines, [this] { return queue_->done; });
  lock.unlock();
  if (done) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::string AccessLog::Line(const HttpExchangeRecord& record) {
  const bool is_long = record.target.size() > kMaxTargetBytes;
  return fmt::format("INFO:     {} - \"{} {}{} HTTP/{}\" {} {}\n", record.client,
                     PercentEncodeUnsafe(record.method),
                     PercentEncodeUnsafe(record.target.substr(0, kMaxTargetBytes)),
                     is_long ? "..." : "", record.version, record.status,
                     HttpReason(record.status));
}

void AccessLog::Add(const HttpExchangeRecord& record) {
  if (disabled_) return;
  if (std::find(quiet_paths_.begin(), quiet_paths_.end(), record.path) != quiet_paths_.end())
    return;
  std::string line = Line(record);
  {
    std::lock_guard lock(queue_->mutex);
    if (queue_->lines.size() >= kMaxWaiting) {
      ++queue_->dropped;
      return;
    }
    queue_->lines.push_back(std::move(line));
  }
  queue_->wake.notify_one();
}

void AccessLog::Work(const std::shared_ptr<Queue>& queue, int file) {
  std::unique_lock lock(queue->mutex);
  while (true) {
    queue->wake.wait(lock, [&] { return queue->stopping || !queue->lines.empty(); });
    if (queue->lines.empty()) break;
    std::vector<std::string> lines;
    lines.swap(queue->lines);
    const uint64_t dropped = std::exchange(queue->dropped, 0);
    lock.unlock();
    std::string text;
    for (const std::string& line : lines) text += line;
    if (dropped > 0) text += fmt::format("INFO:     {} lines of this log were dropped\n", dropped);
    WriteAll(file, text);
    lock.lock();
  }
  queue->done = true;
  queue->ended.notify_all();
}

}  // namespace sluice
