// The format of log lines, and lines with additional fields.
// Thread safety: as base/log.h; call the setter before other threads start.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/log.h"

namespace sluice {

enum class LogFormat {
  kText,  // as LogStyle says
  kJson,  // {"ts":"2026-11-21T07:11:03.512Z","level":"info","source":"engine","message":"..."}
};
// JSON lines are written to the same descriptor as text lines of the style.
void SetLogFormat(LogFormat format);
LogFormat CurrentLogFormat();

LogStyle CurrentLogStyle();

// The descriptor that lines of the current style are written to.
int LogFile();

// Additional data of a line: `status=200` in text, a member in JSON. Fields with the value "" are
// left out.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

// The whole line, newline included, in the current style and format. Control characters in texts
// are escaped.
std::string FormatLogLine(LogLevel level, std::string_view component, std::string_view message,
                          std::span<const LogField> fields = {});

// Logs at any level: for lines that scripts wait for.
void LogAlways(std::string_view component, std::string_view message);

}  // namespace sluice
