#include "base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto result = std::make_shared<spdlog::logger>("sluice", sink);
    result->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc);
    result->flush_on(spdlog::level::trace);
    return result;
  }();
  return *logger;
}

const char* Name(LogLevel level) {
  static constexpr const char* kNames[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};
  return kNames[static_cast<int>(level)];
}

}  // namespace

void SetLogLevel(LogLevel level) {
  Logger().set_level(ToSpdlog(level));
}

bool LogEnabled(LogLevel level) {
  return Logger().should_log(ToSpdlog(level));
}

void LogLine(LogLevel level, std::string_view component, std::string_view message) {
  Logger().log(ToSpdlog(level), "{} {} {}", Name(level), component, message);
}

}  // namespace sluice
