#include <cstdio>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/talk.h"

namespace sluice::cli {
namespace {

json::Value Message(std::string_view role, std::string_view content) {
  json::Value message{json::Value::Object{}};
  message.Set("role", json::Value(role));
  message.Set("content", json::Value(content));
  return message;
}

// The answer as the next request tells it.
json::Value AnswerMessage(const AnswerEnd& answer) {
  json::Value message = Message("assistant", answer.text);
  json::Value::Array calls;
  for (const ToolCall& call : answer.calls) {
    json::Value function{json::Value::Object{{"name", call.name}, {"arguments", call.arguments}}};
    calls.push_back(json::Value(json::Value::Object{
        {"id", call.id}, {"type", "function"}, {"function", std::move(function)}}));
  }
  if (!calls.empty()) message.Set("tool_calls", std::move(calls));
  return message;
}

}  // namespace

Result<int> RunChat(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Talk> talk, Talk::Start(settings));
  json::Value::Array history;
  if (const auto system = settings.Text("system-prompt"))
    history.push_back(Message("system", *system));

  const auto ask = [&](const std::string& question) -> Result<AnswerEnd> {
    history.push_back(Message("user", question));
    auto answer = talk->client().Chat(talk->settings(), json::Value(history), PrintPiece,
                                      talk->interrupt().fd());
    fmt::print("\n");
    if (!answer) {
      history.pop_back();
      return answer;
    }
    for (const ToolCall& call : answer->calls)
      fmt::print("call {}({})\n", call.name, call.arguments);
    history.push_back(AnswerMessage(*answer));
    return answer;
  };

  if (const auto question = settings.Text("quick")) {
    ASSIGN_OR_RETURN(const AnswerEnd end, ask(*question));
    return end.cancelled ? 130 : 0;
  }
  return talk->ForEachLine(ask);
}

}  // namespace sluice::cli
