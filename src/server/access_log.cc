#include "server/access_log.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

namespace sluice {

AccessLog::AccessLog(const ServerConfig& config)
    : disabled_(config.disable_access_log), quiet_paths_(config.quiet_access_paths) {
  if (!disabled_) thread_ = std::thread([this] { Work(); });
}

AccessLog::~AccessLog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string AccessLog::Line(const HttpExchangeRecord& record) {
  return fmt::format("INFO:     {} - \"{} {} HTTP/{}\" {} {}\n", record.client,
                     PercentEncodeUnsafe(record.method), PercentEncodeUnsafe(record.target),
                     record.version, record.status, HttpReason(record.status));
}

void AccessLog::Add(const HttpExchangeRecord& record) {
  if (disabled_) return;
  if (std::find(quiet_paths_.begin(), quiet_paths_.end(), record.path) != quiet_paths_.end())
    return;
  std::string line = Line(record);
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(line));
  }
  wake_.notify_one();
}

void AccessLog::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::vector<std::string> lines;
    lines.swap(waiting_);
    const uint64_t dropped = std::exchange(dropped_, 0);
    lock.unlock();
    for (const std::string& line : lines) std::fwrite(line.data(), 1, line.size(), stdout);
    if (dropped > 0) fmt::print(stdout, "INFO:     {} lines of this log were dropped\n", dropped);
    std::fflush(stdout);
    lock.lock();
  }
}

}  // namespace sluice
