// The form of log lines, and lines with fields of their own.
// Thread safety: as base/log.h; the setter is called before there are other threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/log.h"

namespace sluice {

enum class LogFormat {
  kText,  // that of the LogStyle
  kJson,  // {"ts":"2026-11-21T07:11:03.512Z","level":"info","source":"engine","message":"..."}
};
// JSON lines of every style are written where its text lines are.
void SetLogFormat(LogFormat format);
LogFormat CurrentLogFormat();

LogStyle CurrentLogStyle();

// The descriptor that lines of the current style are written to.
int LogFile();

// What a line tells beside its message: `status=200` in text, a member in JSON. Fields without a
// value ("") are left out.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

// The whole line, with its end, in the current style and format. Control characters of the texts
// are written as escapes.
std::string FormatLogLine(LogLevel level, std::string_view component, std::string_view message,
                          std::span<const LogField> fields = {});

// Logs at any level: for lines that scripts wait for.
void LogAlways(std::string_view component, std::string_view message);

}  // namespace sluice
