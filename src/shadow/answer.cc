#include "shadow/answer.h"

#include <utility>

#include "base/json.h"
#include "client/event_stream.h"
#include "shadow/json_members.h"

namespace sluice::shadow {
namespace {

constexpr size_t kMaxChoices = 4096;

void AppendIds(const json::Value* value, std::vector<int32_t>& ids) {
  if (value == nullptr || !value->is_array()) return;
  for (const json::Value& id : value->as_array()) {
    if (id.is_integer()) ids.push_back(static_cast<int32_t>(id.as_integer()));
  }
}

void AppendText(const json::Value* value, std::string& text) {
  if (value != nullptr && value->is_string()) text += value->as_string();
}

void AppendNumbers(const json::Value& list, std::vector<double>& numbers) {
  for (const json::Value& number : list.as_array()) {
    if (number.is_number()) numbers.push_back(number.as_double());
  }
}

void AppendLogprobs(const json::Value* value, std::vector<double>& logprobs) {
  if (value == nullptr) return;
  const json::Value* content = Member(*value, "content");
  if (content != nullptr && content->is_array()) {
    for (const json::Value& token : content->as_array()) {
      const json::Value* number = Member(token, "logprob");
      if (number != nullptr && number->is_number()) logprobs.push_back(number->as_double());
    }
    return;
  }
  const json::Value* numbers = Member(*value, "token_logprobs");
  if (numbers != nullptr && numbers->is_array()) AppendNumbers(*numbers, logprobs);
}

void NoteOther(AnswerChoice& choice, const char* what) {
  if (choice.other.empty()) choice.other = what;
}

// Adds an element of `choices`. `value` comes from a complete answer or from one event of a stream.
void AddChoice(const json::Value& value, Answer& answer) {
  const json::Value* place = Member(value, "index");
  const int64_t index = place != nullptr && place->is_integer() ? place->as_integer() : 0;
  if (index < 0 || index >= static_cast<int64_t>(kMaxChoices)) return;
  if (answer.choices.size() <= static_cast<size_t>(index))
    answer.choices.resize(static_cast<size_t>(index) + 1);
  AnswerChoice& choice = answer.choices[static_cast<size_t>(index)];
  AppendText(Member(value, "text"), choice.text);
  for (const char* name : {"message", "delta"}) {
    const json::Value* message = Member(value, name);
    if (message == nullptr) continue;
    AppendText(Member(*message, "content"), choice.text);
    for (const char* reasoning : {"reasoning", "reasoning_content"}) {
      const json::Value* text = Member(*message, reasoning);
      if (text != nullptr && text->is_string() && !text->as_string().empty())
        NoteOther(choice, "reasoning");
    }
    const json::Value* calls = Member(*message, "tool_calls");
    if (calls != nullptr && calls->is_array() && !calls->as_array().empty())
      NoteOther(choice, "tool calls");
  }
  AppendIds(Member(value, "token_ids"), choice.tokens);
  AppendIds(Member(value, "prompt_token_ids"), choice.prompt);
  AppendLogprobs(Member(value, "logprobs"), choice.logprobs);
  if (Member(value, "stop_reason") != nullptr) choice.matched_stop = true;
  const json::Value* finish = Member(value, "finish_reason");
  if (finish != nullptr && finish->is_string()) choice.finish_reason = finish->as_string();
}

void AddPart(const json::Value& part, Answer& answer) {
  const json::Value* choices = Member(part, "choices");
  if (choices != nullptr && choices->is_array()) {
    for (const json::Value& choice : choices->as_array()) AddChoice(choice, answer);
  }
  // Answers to chats store the token ids of their only prompt outside the choices.
  std::vector<int32_t> prompt;
  AppendIds(Member(part, "prompt_token_ids"), prompt);
  if (!prompt.empty()) {
    if (answer.choices.empty()) answer.choices.resize(1);
    answer.choices[0].prompt = std::move(prompt);
  }
  const json::Value* usage = Member(part, "usage");
  if (usage == nullptr) return;
  const auto count = [&](const char* name, std::optional<int64_t>& to) {
    const json::Value* number = Member(*usage, name);
    if (number != nullptr && number->is_integer()) to = number->as_integer();
  };
  count("prompt_tokens", answer.prompt_tokens);
  count("completion_tokens", answer.completion_tokens);
}

}  // namespace

Result<Answer> ReadAnswer(std::string_view body, bool is_stream) {
  Answer answer;
  if (!is_stream) {
    ASSIGN_OR_RETURN(const json::Value whole, json::Parse(body, kJsonLimits));
    AddPart(whole, answer);
  } else {
    EventStream events;
    std::string problem;
    bool has_ended = false;
    events.Take(body, [&](std::string_view data) {
      if (data == "[DONE]") {
        has_ended = true;
        return false;
      }
      const auto part = json::Parse(data, kJsonLimits);
      if (!part || !part->is_object()) {
        problem = "an event of the stream is not a JSON object";
        return false;
      }
      if (Member(*part, "error") != nullptr) {
        problem = "the stream ended with an error";
        return false;
      }
      AddPart(*part, answer);
      return true;
    });
    if (problem.empty() && !has_ended) problem = "the stream ended without [DONE]";
    if (!problem.empty()) return Fail(ErrorCode::kInvalidData, problem);
  }
  if (answer.choices.empty()) return Fail(ErrorCode::kInvalidData, "the answer has no choices");
  return answer;
}

}  // namespace sluice::shadow
