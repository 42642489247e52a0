#include "base/log.h"

#include <ctime>
#include <memory>
#include <string>

#include <fmt/chrono.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

std::shared_ptr<spdlog::logger> MakeLogger(LogStyle style) {
  spdlog::sink_ptr sink;
  if (style == LogStyle::kSluice) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
  }
  auto result = std::make_shared<spdlog::logger>("sluice", std::move(sink));
  switch (style) {
    case LogStyle::kSluice:
      result->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc);
      break;
    case LogStyle::kVllm: result->set_pattern("(APIServer pid=%P) %v"); break;
    case LogStyle::kTrtllm: result->set_pattern("[%m/%d/%Y-%H:%M:%S] [TRT-LLM] %v"); break;
  }
  result->flush_on(spdlog::level::trace);
  return result;
}

LogStyle current_style = LogStyle::kSluice;

std::shared_ptr<spdlog::logger>& SharedLogger() {
  static std::shared_ptr<spdlog::logger> logger = MakeLogger(LogStyle::kSluice);
  return logger;
}

spdlog::logger& Logger() {
  return *SharedLogger();
}

const char* Name(LogLevel level) {
  static constexpr const char* kNames[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};
  return kNames[static_cast<int>(level)];
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
  const auto to = ToSpdlog(level);
  const std::string message = EscapeControls(text, "\t");
  switch (current_style) {
    case LogStyle::kSluice: Logger().log(to, "{} {} {}", Name(level), component, message); return;
    case LogStyle::kVllm: {
      const char* name = level == LogLevel::kWarning ? "WARNING" : Name(level);
      std::tm now{};
      const std::time_t seconds = std::time(nullptr);
      localtime_r(&seconds, &now);
      Logger().log(to, "{} {:%m-%d %H:%M:%S} [{}] {}", name, now, component, message);
      return;
    }
    case LogStyle::kTrtllm: Logger().log(to, "[{}] {}", Name(level)[0], message); return;
  }
}

}  // namespace sluice
