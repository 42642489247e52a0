#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/chrono.h>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "base/append_format.h"
#include "base/json.h"
#include "base/log_format.h"
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

// Atomic, because threads that write the access log read these values, and may outlive the server.
std::atomic<LogStyle> current_style = LogStyle::kSluice;
std::atomic<LogFormat> current_format = LogFormat::kText;

const char* Name(LogLevel level) {
  static constexpr const char* kNames[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};
  return kNames[static_cast<int>(level)];
}

const char* JsonName(LogLevel level) {
  static constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

// Appends the time in UTC: 2026-11-21T07:11:03.512Z.
void AppendUtcTime(std::string& out) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const std::tm parts = fmt::gmtime(std::chrono::system_clock::to_time_t(seconds));
  AppendFormat(out, "{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts,
               std::chrono::floor<milliseconds>(now - seconds).count());
}

void AppendNumber(std::string& out, const LogField& field) {
  if (const auto* number = std::get_if<int64_t>(&field.value)) {
    AppendFormat(out, "{}", *number);
  } else {
    AppendFormat(out, "{:.6f}", std::get<double>(field.value));
  }
}

void AppendJsonField(std::string& out, const LogField& field) {
  const auto* text = std::get_if<std::string_view>(&field.value);
  if (text != nullptr && text->empty()) return;
  AppendFormat(out, ",\"{}\":", field.name);
  text != nullptr ? json::AppendString(out, *text) : AppendNumber(out, field);
}

// Appends a single word as it is, other text in quotes.
void AppendTextValue(std::string& out, std::string_view text) {
  const std::string shown = EscapeControls(text, "");
  if (shown.find_first_of(" \"") == std::string::npos) {
    out += shown;
    return;
  }
  out += '"';
  for (const char c : shown) {
    if (c == '"') out += '\\';
    out += c;
  }
  out += '"';
}

void AppendTextField(std::string& out, const LogField& field) {
  const auto* text = std::get_if<std::string_view>(&field.value);
  if (text != nullptr && text->empty()) return;
  AppendFormat(out, " {}=", field.name);
  text != nullptr ? AppendTextValue(out, *text) : AppendNumber(out, field);
}

// Escapes characters that JSON allows in strings, but that some programs treat as line ends.
void EscapeLineSeparators(std::string& json) {
  constexpr std::pair<std::string_view, std::string_view> kSeparators[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  for (const auto& [bytes, escape] : kSeparators) {
    for (size_t at = 0; (at = json.find(bytes, at)) != std::string::npos; at += escape.size())
      json.replace(at, bytes.size(), escape);
  }
}

std::string JsonLine(LogLevel level, std::string_view component, std::string_view message,
                     std::span<const LogField> fields) {
  std::string line = "{\"ts\":\"";
  AppendUtcTime(line);
  AppendFormat(line, "\",\"level\":\"{}\",\"source\":\"{}\",\"message\":", JsonName(level),
               component);
  json::AppendString(line, message);
  for (const LogField& field : fields) AppendJsonField(line, field);
  EscapeLineSeparators(line);
  line += "}\n";
  return line;
}

std::string TextLine(LogLevel level, std::string_view component, std::string_view message) {
  std::string line;
  const auto local = [] {
    const std::time_t seconds = std::time(nullptr);
    std::tm now{};
    localtime_r(&seconds, &now);
    return now;
  };
  switch (current_style.load()) {
    case LogStyle::kSluice:
      AppendUtcTime(line);
      AppendFormat(line, " {} {} ", Name(level), component);
      break;
    case LogStyle::kVllm:
      AppendFormat(line, "(APIServer pid={}) {} {:%m-%d %H:%M:%S} [{}] ", getpid(),
                   level == LogLevel::kWarning ? "WARNING" : Name(level), local(), component);
      break;
    case LogStyle::kTrtllm:
      AppendFormat(line, "[{:%m/%d/%Y-%H:%M:%S}] [TRT-LLM] [{}] ", local(), Name(level)[0]);
      break;
  }
  line += EscapeControls(message, "\t");
  return line;
}

// The maximum time that a call waits for room if the reader of the log is slow.
constexpr std::chrono::milliseconds kPatience(200);

class Sink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(int file) : file_(file) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    // After a dropped line, later lines do not wait again for the same reader.
    const std::chrono::milliseconds patience = num_dropped_ > 0 ? kPatience * 0 : kPatience;
    if (num_dropped_ > 0) {
      const std::string told =
          FormatLogLine(LogLevel::kWarning, "log",
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

// The formatter adds nothing, because each message is a complete line.
std::shared_ptr<spdlog::logger> MakeLogger() {
  auto result = std::make_shared<spdlog::logger>("sluice", std::make_shared<Sink>(LogFile()));
  result->set_formatter(
      std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::local, ""));
  return result;
}

std::shared_ptr<spdlog::logger>& SharedLogger() {
  static std::shared_ptr<spdlog::logger> logger = MakeLogger();
  return logger;
}

spdlog::logger& Logger() {
  return *SharedLogger();
}

}  // namespace

void SetLogStyle(LogStyle style) {
  const auto level = Logger().level();
  current_style = style;
  SharedLogger() = MakeLogger();
  Logger().set_level(level);
}

void SetLogLevel(LogLevel level) {
  Logger().set_level(ToSpdlog(level));
}

bool LogEnabled(LogLevel level) {
  return Logger().should_log(ToSpdlog(level));
}

void LogLine(LogLevel level, std::string_view component, std::string_view text) {
  Logger().log(ToSpdlog(level), FormatLogLine(level, component, text));
}

void SetLogFormat(LogFormat format) {
  current_format = format;
}

LogFormat CurrentLogFormat() {
  return current_format;
}

LogStyle CurrentLogStyle() {
  return current_style;
}

int LogFile() {
  return current_style == LogStyle::kSluice ? STDERR_FILENO : STDOUT_FILENO;
}

std::string FormatLogLine(LogLevel level, std::string_view component, std::string_view message,
                          std::span<const LogField> fields) {
  if (current_format == LogFormat::kJson) return JsonLine(level, component, message, fields);
  std::string line = TextLine(level, component, message);
  for (const LogField& field : fields) AppendTextField(line, field);
  line += '\n';
  return line;
}

void LogAlways(std::string_view component, std::string_view message) {
  // Bypasses the logger, which would drop lines below its level.
  WriteLogText(LogFile(), FormatLogLine(LogLevel::kInfo, component, message), kPatience);
}

}  // namespace sluice
