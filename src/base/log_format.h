// Formats log lines, optionally with additional fields. Thread safety: the same as in base/log.h;
// call the setter before other threads start.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/log.h"

namespace sluice {

enum class LogFormat {
  kText,  // text in the format of the current LogStyle
  kJson,  // {"ts":"2026-11-21T07:11:03.512Z","level":"info","source":"engine","message":"..."}
};
// Sets the format. JSON lines go to the same file descriptor as text lines of the current style.
void SetLogFormat(LogFormat format);
LogFormat CurrentLogFormat();

LogStyle CurrentLogStyle();

// The file descriptor for lines of the current style.
int LogFile();

// An additional field of a line: `status=200` in text, a member in JSON. Fields whose value is ""
// are omitted.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

// Returns the complete line, including its newline, in the current style and format. Control
// characters are escaped.
std::string FormatLogLine(LogLevel level, std::string_view component, std::string_view message,
                          std::span<const LogField> fields = {});

// Logs a line regardless of the log level. For lines that scripts wait for.
void LogAlways(std::string_view component, std::string_view message);

}  // namespace sluice
