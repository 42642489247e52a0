#include "shadow/asked.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "shadow/json_members.h"

namespace sluice::shadow {
namespace {

constexpr double kMostTemperature = 1000;

double Number(const json::Value& body, std::string_view key, double absent) {
  const json::Value* value = Member(body, key);
  return value != nullptr && value->is_number() ? value->as_double() : absent;
}

// Reads numeric fields and remembers the first one that is out of range.
class Numbers {
 public:
  explicit Numbers(const json::Value& body) : body_(body) {}

  // Returns `low` if the number is out of range.
  double Read(std::string_view key, double absent, double low, double high) {
    const double number = Number(body_, key, absent);
    if (number >= low && number <= high) return number;
    if (out_of_range_.empty()) out_of_range_ = fmt::format("{} out of its range", key);
    return low;
  }
  int64_t ReadInteger(std::string_view key, int64_t absent, int64_t low) {
    constexpr double kMost = std::numeric_limits<int32_t>::max();
    return static_cast<int64_t>(
        Read(key, static_cast<double>(absent), static_cast<double>(low), kMost));
  }
  // Name of the first field that is out of range; "" if there is none.
  const std::string& out_of_range() const { return out_of_range_; }

 private:
  const json::Value& body_;
  std::string out_of_range_;
};

bool IsTrue(const json::Value& body, std::string_view key) {
  const json::Value* value = Member(body, key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

bool IsEmpty(const json::Value& value) {
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  if (value.is_string()) return value.as_string().empty();
  return false;
}

// Returns the name of the first field that affects which token is chosen but has no member in
// Choosing.
std::string OtherChoosing(const json::Value& body, const SamplingDefaults& defaults) {
  if (Number(body, "frequency_penalty", 0) != 0) return "frequency_penalty";
  if (Number(body, "presence_penalty", 0) != 0) return "presence_penalty";
  if (Number(body, "repetition_penalty", defaults.repetition_penalty.value_or(1)) != 1)
    return "repetition_penalty";
  for (const char* name :
       {"logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "guided_json",
        "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema", "thinking"}) {
    const json::Value* value = Member(body, name);
    if (value != nullptr && !IsEmpty(*value)) return name;
  }
  const json::Value* format = Member(body, "response_format");
  if (format != nullptr) {
    const json::Value* type = Member(*format, "type");
    if (type == nullptr || !type->is_string() || type->as_string() != "text")
      return "response_format";
  }
  const json::Value* choice = Member(body, "tool_choice");
  const bool is_free =
      choice == nullptr ||
      (choice->is_string() && (choice->as_string() == "auto" || choice->as_string() == "none"));
  return is_free ? "" : "tool_choice";
}

bool HasImages(const json::Value& messages) {
  if (!messages.is_array()) return false;
  for (const json::Value& message : messages.as_array()) {
    const json::Value* content = Member(message, "content");
    if (content == nullptr || !content->is_array()) continue;
    for (const json::Value& part : content->as_array()) {
      const json::Value* type = Member(part, "type");
      if (type != nullptr && type->is_string() && type->as_string() != "text") return true;
    }
  }
  return false;
}

Status ReadPrompts(Asked& asked) {
  if (asked.is_chat) {
    const json::Value* messages = Member(asked.body, "messages");
    if (messages == nullptr)
      return Fail(ErrorCode::kInvalidData, "the request has no messages", "messages");
    if (HasImages(*messages)) asked.not_compared = "images";
    asked.prompts.emplace_back();
    return {};
  }
  const json::Value* prompt = Member(asked.body, "prompt");
  if (prompt == nullptr || (!prompt->is_string() && !prompt->is_array()))
    return Fail(ErrorCode::kInvalidData, "the request has no prompt", "prompt");
  const bool is_one =
      prompt->is_string() || (!prompt->as_array().empty() && prompt->as_array()[0].is_integer());
  if (is_one) {
    asked.prompts.push_back(*prompt);
  } else {
    asked.prompts = prompt->as_array();
  }
  return {};
}

}  // namespace

bool IsCompared(std::string_view method, std::string_view path) {
  return method == "POST" &&
         (path.ends_with("/chat/completions") || path.ends_with("/v1/completions"));
}

Result<Asked> ReadAsked(std::string_view path, std::string_view body,
                        const SamplingDefaults& defaults) {
  Asked asked;
  asked.is_chat = path.ends_with("/chat/completions");
  ASSIGN_OR_RETURN(asked.body, json::Parse(body, kJsonLimits));
  if (!asked.body.is_object())
    return Fail(ErrorCode::kInvalidData, "the request's body is not a JSON object");
  RETURN_IF_ERROR(ReadPrompts(asked));
  const json::Value& value = asked.body;
  Numbers numbers(value);
  asked.num_choices = numbers.ReadInteger("n", 1, 1);
  asked.choosing = {.temperature = numbers.Read("temperature", defaults.temperature.value_or(1), 0,
                                                kMostTemperature),
                    .top_p = numbers.Read("top_p", defaults.top_p.value_or(1), 0, 1),
                    .top_k = numbers.ReadInteger("top_k", defaults.top_k.value_or(0), -1),
                    .min_p = numbers.Read("min_p", defaults.min_p.value_or(0), 0, 1)};
  asked.min_tokens = numbers.ReadInteger("min_tokens", 0, 0);
  asked.ignores_end = IsTrue(value, "ignore_eos");
  for (const char* name : {"stop", "stop_token_ids"}) {
    const json::Value* stops = Member(value, name);
    if (stops != nullptr && !IsEmpty(*stops)) asked.has_stops = true;
  }
  asked.also = OtherChoosing(value, defaults);
  if (IsTrue(value, "echo")) asked.not_compared = "echo";
  if (IsTrue(value, "use_beam_search")) asked.not_compared = "beam search";
  if (Member(value, "suffix") != nullptr) asked.not_compared = "suffix";
  if (Number(value, "prompt_logprobs", 0) != 0) asked.not_compared = "prompt_logprobs";
  if (IsTrue(value, "continue_final_message")) asked.not_compared = "continue_final_message";
  if (!numbers.out_of_range().empty()) asked.not_compared = numbers.out_of_range();
  return asked;
}

}  // namespace sluice::shadow
