// POST /tokenize and /detokenize.
#include <limits>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/answer_json.h"
#include "server/api/api.h"
#include "server/api/conversation.h"
#include "server/api/field_reader.h"
#include "server/api/prompt.h"

namespace sluice {

ApiStatus Api::Tokenize(const HttpRequest&, const json::Value& body, Writer writer, Model model) {
  if (!body.is_object()) return NotAnObject(body, 2);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  const std::optional<std::string> name = reader.OptionalString("model");
  const bool return_strings = reader.OptionalBool("return_token_strs").value_or(false);
  std::string text;
  bool add_special_tokens = false;
  if (body.Find("messages") != nullptr) {
    const ConversationFields conversation = ReadConversation(reader);
    if (!errors.empty()) return ValidationFailed(errors);
    API_RETURN_IF_ERROR(model->CheckName(name));
    API_ASSIGN_OR_RETURN(text, RenderConversation(conversation, conversation.messages, *model));
    add_special_tokens = conversation.add_special_tokens;
  } else {
    const json::Value* prompt = body.Find("prompt");
    if (prompt == nullptr) {
      reader.AddMissing("prompt");
    } else if (prompt->is_string()) {
      text = prompt->as_string();
    } else {
      reader.Add("string_type", "prompt", "Input should be a valid string", *prompt);
    }
    add_special_tokens = reader.Bool("add_special_tokens", true);
    if (!errors.empty()) {
      reader.AddMissing("messages");
      return ValidationFailed(errors);
    }
    API_RETURN_IF_ERROR(model->CheckName(name));
    API_RETURN_IF_ERROR(CheckText(text, "prompt"));
  }
  const std::vector<int32_t> tokens = model->tokenizer->Encode(text, add_special_tokens);
  std::string answer = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", tokens.size(),
                                   model->max_model_len);
  AppendTokenIds(answer, tokens);
  answer += R"(,"token_strs":)";
  if (return_strings) {
    answer.push_back('[');
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) answer.push_back(',');
      json::AppendString(answer, model->tokenizer->IdToToken(tokens[i]));
    }
    answer.push_back(']');
  } else {
    answer += "null";
  }
  writer->Send(JsonResponse(answer + "}"));
  return {};
}

ApiStatus Api::Detokenize(const HttpRequest&, const json::Value& body, Writer writer, Model model) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  const std::optional<std::string> name = reader.OptionalString("model");
  const json::Value* given = body.Find("tokens");
  std::vector<int64_t> ids;
  if (given == nullptr) {
    reader.AddMissing("tokens");
  } else if (given->is_null()) {
    reader.Add("list_type", "tokens", "Input should be a valid list", *given);
  } else {
    ids = reader.OptionalInts("tokens", {.min = 0}).value_or(std::vector<int64_t>{});
  }
  if (!errors.empty()) return ValidationFailed(errors);
  API_RETURN_IF_ERROR(model->CheckName(name));
  std::vector<int32_t> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id > std::numeric_limits<int32_t>::max()) {
      return BadRequest(fmt::format("token id {} is larger than any vocabulary", id));
    }
    tokens.push_back(static_cast<int32_t>(id));
  }
  std::string answer = R"({"prompt":)";
  json::AppendString(answer, model->tokenizer->Decode(tokens, false));
  writer->Send(JsonResponse(answer + "}"));
  return {};
}

}  // namespace sluice
