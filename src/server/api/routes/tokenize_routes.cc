// POST /tokenize and /detokenize.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/common/answer_json.h"
#include "server/api/common/field_reader.h"
#include "server/api/context/route_table.h"
#include "server/api/request/conversation.h"
#include "server/api/request/prompt.h"

namespace sluice {
namespace {

// Maximum number of bytes that a token's spelling takes in JSON, if it has no control characters.
size_t StringBytes(std::string_view spelling) {
  return 2 * spelling.size() + 2;
}

// Reserves memory for an answer of `bytes`, in addition to the `kept` bytes of input.
ApiStatus ReserveAnswer(const RouteCall& call, size_t kept, size_t bytes) {
  if (call.request.memory == nullptr) return {};
  // The parsed body still exists, so its memory is added.
  return ReserveMemory(call.request.memory,
                       std::max<size_t>(call.request.memory->bytes(), 2 * kept) + bytes);
}

ApiStatus Tokenize(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  std::optional<std::string> name;
  bool return_strings = false;
  reader.Read("model", name);
  reader.Read("return_token_strs", return_strings, {.nullable = true});
  std::string text;
  bool add_special_tokens = true;
  if (body.Find("messages") != nullptr) {
    const ConversationFields conversation = ReadConversation(reader);
    if (!errors.empty()) return ValidationFailed(errors);
    API_RETURN_IF_ERROR(call.model->CheckName(name));
    API_ASSIGN_OR_RETURN(RenderedConversation rendered,
                         RenderConversation(call, conversation, conversation.messages));
    text = std::move(rendered.text);
    add_special_tokens = conversation.add_special_tokens;
  } else {
    reader.Read("prompt", text, {.required = true});
    reader.Read("add_special_tokens", add_special_tokens);
    if (!errors.empty()) return ValidationFailed(errors);
    API_RETURN_IF_ERROR(call.model->CheckName(name));
  }
  API_RETURN_IF_ERROR(CheckCharacters(text, *call.model));
  const Tokenizer& tokenizer = *call.model->tokenizer;
  API_ASSIGN_OR_RETURN(
      const std::vector<int32_t> tokens,
      EncodeText(*call.model, text, add_special_tokens, [&call] { return call.client->closed(); }));
  size_t bytes = 100 + kTokenIdBytes * tokens.size();
  if (return_strings) {
    for (const int32_t token : tokens) bytes += StringBytes(tokenizer.IdToToken(token)) + 1;
  }
  API_RETURN_IF_ERROR(ReserveAnswer(call, text.size() + sizeof(int32_t) * tokens.size(), bytes));
  std::string answer;
  answer.reserve(bytes);
  answer += fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", tokens.size(),
                        call.model->max_model_len);
  AppendTokenIds(answer, tokens);
  answer += R"(,"token_strs":)";
  if (return_strings) {
    answer.push_back('[');
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) answer.push_back(',');
      json::AppendString(answer, tokenizer.IdToToken(tokens[i]));
    }
    answer.push_back(']');
  } else {
    answer += "null";
  }
  answer.push_back('}');
  call.client->Send(JsonResponse(std::move(answer)));
  return {};
}

ApiStatus Detokenize(const RouteCall& call, const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  std::optional<std::string> name;
  std::vector<int64_t> ids;
  reader.Read("model", name);
  reader.Read("tokens", ids, {.required = true, .min = 0});
  if (!errors.empty()) return ValidationFailed(errors);
  API_RETURN_IF_ERROR(call.model->CheckName(name));
  // The model may have more ids than the tokenizer has tokens. The additional ids have no text.
  const int64_t size = std::max<int64_t>(call.model->tokenizer->vocab_size(),
                                         call.model->engine->info().model.vocab_size);
  std::vector<int32_t> tokens;
  tokens.reserve(ids.size());
  size_t bytes = 100;
  for (const int64_t id : ids) {
    if (id >= size) {
      return BadRequest(
          fmt::format("tokens contains token id {}, but the vocabulary is [0, {})", id, size));
    }
    tokens.push_back(static_cast<int32_t>(id));
    bytes += StringBytes(call.model->tokenizer->IdToToken(tokens.back()));
  }
  // Memory for the text and the answer. While an answer grows, it may take twice its size.
  API_RETURN_IF_ERROR(ReserveAnswer(call, 3 * sizeof(int64_t) * ids.size(), 3 * bytes));
  std::string answer = R"({"prompt":)";
  json::AppendString(answer, call.model->tokenizer->Decode(tokens, false));
  answer.push_back('}');
  call.client->Send(JsonResponse(std::move(answer)));
  return {};
}

}  // namespace

std::vector<Route> TokenizeRoutes() {
  return {
      WithBody("/tokenize", Tokenize, "Token ids of a text or a conversation.", "TokenizeRequest",
               "Tokens"),
      WithBody("/detokenize", Detokenize, "The text of token ids.", "DetokenizeRequest", "Text"),
  };
}

}  // namespace sluice
