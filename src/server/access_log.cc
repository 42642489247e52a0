#include "server/access_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/json.h"
#include "base/log_output.h"
#include "base/mutex.h"
#include "base/utf8.h"
#include "server/log_secrets.h"

namespace sluice {
namespace {

constexpr auto kLastLines = std::chrono::seconds(1);
// Maximum logged length of a target. A target may be as long as a request's head.
constexpr size_t kMaxTargetBytes = 2048;

// Maximum time that a write waits for a blocked reader: in practice, until the process ends.
constexpr auto kPatience = std::chrono::hours(24 * 7);

// Maximum number of bytes of an id and of an error message.
constexpr size_t kMaxIdBytes = 128;
constexpr size_t kMaxReasonBytes = 500;

// Whether lines have uvicorn's format.
bool IsUvicorn() {
  return CurrentLogFormat() == LogFormat::kText && CurrentLogStyle() != LogStyle::kSluice;
}

// Returns the reason why a request was refused: the error message in the first bytes of a response
// body, in the format of any of the APIs.
std::string ReasonOf(std::string_view body) {
  std::string reason(body);
  if (const auto value = json::Parse(body)) {
    const json::Value* error = value->Find("error");
    for (const json::Value* place : {error == nullptr ? nullptr : error->Find("message"), error,
                                     value->Find("message"), value->Find("detail")}) {
      if (place == nullptr || !place->is_string()) continue;
      reason = place->as_string();
      break;
    }
  }
  return std::string(Utf8Prefix(reason, kMaxReasonBytes));
}

// 503 is only a warning: the server is loading, draining or full, or has already logged why it
// ended.
LogLevel LevelOf(int status) {
  return status >= 500 && status != 503 ? LogLevel::kError
         : status >= 400                ? LogLevel::kWarning
                                        : LogLevel::kInfo;
}

}  // namespace

struct AccessLog::Queue {
  Mutex mutex;
  CondVar wake, ended;
  std::vector<std::string> lines GUARDED_BY(mutex);
  uint64_t dropped GUARDED_BY(mutex) = 0;
  bool stopping GUARDED_BY(mutex) = false, done GUARDED_BY(mutex) = false;
};

AccessLog::AccessLog(const ServerConfig& config, std::shared_ptr<const ApiKeys> keys, int file)
    : disabled_(config.disable_access_log),
      quiet_paths_(config.quiet_access_paths),
      keys_(std::move(keys)),
      queue_(std::make_shared<Queue>()) {
  if (!disabled_)
    thread_ = StartThread("access-log", [queue = queue_, file] { Work(queue, file); });
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
  // Secrets are masked before truncation, because truncation might cut through a key.
  const std::string target = WithoutSecrets(record.target, *keys_);
  const std::string shown =
      PercentEncodeUnsafe(std::string_view(target).substr(0, kMaxTargetBytes)) +
      (target.size() > kMaxTargetBytes ? "..." : "");
  const std::string method = PercentEncodeUnsafe(record.method);
  const AnswerNotes none;
  const AnswerNotes& notes = record.notes == nullptr ? none : *record.notes;
  const std::string_view id = notes.request_id.empty() ? record.request_id : notes.request_id;
  const std::string reason = record.status >= 400 ? ReasonOf(record.error_body) : "";
  const std::string message = fmt::format("{} {} {}", method, shown, record.status);
  if (IsUvicorn()) {
    std::string line =
        fmt::format("INFO:     {} - \"{} {} HTTP/{}\" {} {}\n", record.client, method, shown,
                    record.version, record.status, HttpReason(record.status));
    if (reason.empty()) return line;
    const LogField fields[] = {{"request_id", Utf8Prefix(id, kMaxIdBytes)}, {"error", reason}};
    return line + FormatLogLine(LevelOf(record.status), "access", message, fields);
  }
  std::vector<LogField> fields = {{"client", record.client}, {"seconds", record.seconds}};
  if (CurrentLogFormat() == LogFormat::kJson) {
    fields.insert(fields.begin(), {{"method", std::string_view(method)},
                                   {"path", std::string_view(shown)},
                                   {"status", int64_t{record.status}}});
  }
  fields.push_back({"request_id", Utf8Prefix(id, kMaxIdBytes)});
  if (record.notes != nullptr) {
    fields.push_back({"prompt_tokens", notes.prompt_tokens});
    fields.push_back({"completion_tokens", notes.completion_tokens});
    fields.push_back({"cached_tokens", notes.cached_tokens});
    fields.push_back({"finish_reason", std::string_view(notes.finish_reason)});
  }
  fields.push_back({"error", std::string_view(reason)});
  return FormatLogLine(LevelOf(record.status), "access", message, fields);
}

void AccessLog::Add(const HttpExchangeRecord& record) {
  if (disabled_) return;
  if (!IsUvicorn() && !LogEnabled(LevelOf(record.status))) return;
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
    RunGuarded("server", "to write the access log", [&] {
      std::string text;
      for (const std::string& line : lines) text += line;
      if (dropped > 0) {
        const std::string told = fmt::format("{} lines of this log were dropped", dropped);
        text += IsUvicorn() ? fmt::format("INFO:     {}\n", told)
                            : FormatLogLine(LogLevel::kWarning, "access", told);
      }
      WriteLogText(file, text, kPatience);
    });
    lines.clear();
    lock.Lock();
  }
  queue->done = true;
  queue->ended.NotifyAll();
}

}  // namespace sluice
