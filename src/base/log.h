// Log lines. One line per call: control characters of a message are written as escapes.
//
// A call never waits long for the reader of the log: a line that a full pipe, terminal or socket
// does not accept within 200 ms is dropped. Later lines are dropped without a wait until there is
// room again; then the warning `N lines of this log were dropped` precedes the next line. Lines
// written to a closed pipe or a full disk are dropped silently. Nothing is buffered: a line is
// written when the call returns, even if the process ends immediately afterwards.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <string_view>

#include <fmt/format.h>

namespace sluice {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError };

// The format of log lines: Sluice's own, or another server's format for tools that parse that
// server's logs. Default kSluice.
enum class LogStyle {
  kSluice,  // on stderr, UTC: `2026-11-21T07:11:03.512Z INFO engine message`
  kVllm,    // on stdout, local time: `(APIServer pid=7) INFO 11-21 07:11:03 [engine] message`
  kTrtllm,  // on stdout, local time: `[11/21/2026-07:11:03] [TRT-LLM] [I] message`
};
// Call before other threads start.
void SetLogStyle(LogStyle style);

// Lines below `level` are dropped. Default kInfo.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view component, std::string_view message);

template <typename... Args>
void Log(LogLevel level, std::string_view component, fmt::format_string<Args...> format,
         Args&&... args) {
  if (LogEnabled(level))
    LogLine(level, component, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice

// Example: LOG_INFO("engine", "{} requests", n);
#define LOG_DEBUG(component, ...) ::sluice::Log(::sluice::LogLevel::kDebug, component, __VA_ARGS__)
#define LOG_INFO(component, ...) ::sluice::Log(::sluice::LogLevel::kInfo, component, __VA_ARGS__)
#define LOG_WARNING(component, ...) \
  ::sluice::Log(::sluice::LogLevel::kWarning, component, __VA_ARGS__)
#define LOG_ERROR(component, ...) ::sluice::Log(::sluice::LogLevel::kError, component, __VA_ARGS__)
