#include "base/log.h"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/chrono.h>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "base/log_output.h"
#include "base/utf8.h"

namespace sluice {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace: return spdlog::level::trace;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogStyle current_style = LogStyle::kSluice;

const char* Name(LogLevel level) {
  static constexpr const char* kNames[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};
  return kNames[static_cast<int>(level)];
}

// A line without what the pattern of its style puts in front.
std::string Styled(LogLevel level, std::string_view component, std::string_view message) {
  switch (current_style) {
    case LogStyle::kSluice: return fmt::format("{} {} {}", Name(level), component, message);
    case LogStyle::kVllm: {
      const char* name = level == LogLevel::kWarning ? "WARNING" : Name(level);
      std::tm now{};
      const std::time_t seconds = std::time(nullptr);
      localtime_r(&seconds, &now);
      return fmt::format("{} {:%m-%d %H:%M:%S} [{}] {}", name, now, component, message);
    }
    case LogStyle::kTrtllm: return fmt::format("[{}] {}", Name(level)[0], message);
  }
  return std::string(message);
}

// A reader that is only slow gets this time for a line.
constexpr std::chrono::milliseconds kPatience(200);

class Sink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(int file) : file_(file) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    // A reader that has stopped does not get time at each line.
    const std::chrono::milliseconds patience = num_dropped_ > 0 ? kPatience * 0 : kPatience;
    if (num_dropped_ > 0) {
      const std::string told =
          Styled(LogLevel::kWarning, "log",
                 fmt::format("{} lines of this log were dropped", num_dropped_));
      spdlog::details::log_msg notice = message;
      notice.payload = told;
      if (Write(notice, patience)) num_dropped_ = 0;
    }
    if (num_dropped_ > 0 || !Write(message, patience)) ++num_dropped_;
  }
  void flush_() override {}

  bool Write(const spdlog::details::log_msg& message, std::chrono::milliseconds patience) {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    return WriteLogText(file_, std::string_view(text.data(), text.size()), patience);
  }

  const int file_;
  uint64_t num_dropped_ = 0;
};

std::shared_ptr<spdlog::logger> MakeLogger(LogStyle style) {
  auto result = std::make_shared<spdlog::logger>(
      "sluice", std::make_shared<Sink>(style == LogStyle::kSluice ? STDERR_FILENO : STDOUT_FILENO));
  switch (style) {
    case LogStyle::kSluice:
      result->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc);
      break;
    case LogStyle::kVllm: result->set_pattern("(APIServer pid=%P) %v"); break;
    case LogStyle::kTrtllm: result->set_pattern("[%m/%d/%Y-%H:%M:%S] [TRT-LLM] %v"); break;
  }
  return result;
}

std::shared_ptr<spdlog::logger>& SharedLogger() {
  static std::shared_ptr<spdlog::logger> logger = MakeLogger(LogStyle::kSluice);
  return logger;
}

spdlog::logger& Logger() {
  return *SharedLogger();
}

}  // namespace

void SetLogStyle(LogStyle style) {
  const auto level = Logger().level();
  current_style = style;
  SharedLogger() = MakeLogger(style);
  Logger().set_level(level);
}

void SetLogLevel(LogLevel level) {
  Logger().set_level(ToSpdlog(level));
}

bool LogEnabled(LogLevel level) {
  return Logger().should_log(ToSpdlog(level));
}

void LogLine(LogLevel level, std::string_view component, std::string_view text) {
  Logger().log(ToSpdlog(level), Styled(level, component, EscapeControls(text, "\t")));
}

}  // namespace sluice
