#include "chat/render_tool.h"

#include <cstdio>
#include <string>

#include "base/json_ascii.h"

namespace sluice {

Result<std::chrono::local_time<std::chrono::microseconds>> ParseCivilTime(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  char separator = 'T';
  int end = 0;
  const std::string copy(text);
  const auto bad = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                "'" + copy + "' is not a time; expected one like 2025-07-26T12:34:56");
  };
  int fields = std::sscanf(copy.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &end);
  if (fields != 3) return bad();
  if (static_cast<size_t>(end) != copy.size()) {
    int rest = 0;
    fields = std::sscanf(copy.c_str() + end, "%c%2d:%2d:%2d%n", &separator, &hour, &minute, &second,
                         &rest);
    if (fields != 4 || (separator != 'T' && separator != ' ') ||
        static_cast<size_t>(end) + static_cast<size_t>(rest) != copy.size())
      return bad();
  }
  const auto date = std::chrono::year(year) / std::chrono::month(static_cast<unsigned>(month)) /
                    std::chrono::day(static_cast<unsigned>(day));
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
    return bad();
  return std::chrono::local_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second) + std::chrono::microseconds(0);
}

Status RunRender(const ChatTemplate& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out) {
  return RunRender(Result<ChatTemplate>(chat_template), options, defaults, in, out);
}

Status RunRender(const Result<ChatTemplate>& chat_template, const RenderOptions& options,
                 const json::Value& defaults, std::istream& in, std::ostream& out) {
  const auto render = [&](const std::string& line) -> Result<std::string> {
    RETURN_IF_ERROR(chat_template);
    ASSIGN_OR_RETURN(const json::Value given, json::Parse(line));
    if (!given.is_object()) {
      return Fail(ErrorCode::kInvalidArgument,
                  std::string("a line must be an object of variables, not ") +
                      json::TypeName(given.type()));
    }
    json::Value variables{json::Value::Object{}};
    variables.Set("tools", nullptr);
    variables.Set("documents", nullptr);
    if (defaults.is_object()) {
      for (const auto& [name, value] : defaults.as_object()) variables.Set(name, value);
    }
    for (const auto& [name, value] : given.as_object()) variables.Set(name, value);
    return chat_template->Render(variables, options);
  };
  std::string line;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<std::string> text = render(line);
    std::string answer = text ? "{\"text\":" : "{\"error\":";
    json::AppendAsciiString(answer, text ? *text : text.error().message);
    answer += "}\n";
    out << answer << std::flush;
    if (!out) return Fail(ErrorCode::kInvalidArgument, "the output cannot be written");
  }
  return {};
}

}  // namespace sluice
