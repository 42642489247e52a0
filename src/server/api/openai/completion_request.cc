#include "server/api/openai/completion_request.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/api/request/unsupported_fields.h"

namespace sluice {
namespace {

constexpr std::string_view kTokenId = "a token id of at least 0";

// Reads a string, a list of strings, a list of token ids, or a list of lists of token ids.
void ReadPrompt(FieldReader& reader, CompletionRequest& request) {
  const json::Value* prompt = reader.Raw("prompt");
  if (prompt == nullptr) return;
  if (prompt->is_string()) {
    request.texts.push_back(prompt->as_string());
    return;
  }
  if (!prompt->is_array()) {
    reader.Add("prompt", "a string, or a list of strings, token ids or lists of token ids",
               *prompt);
    return;
  }
  const json::Value::Array& list = prompt->as_array();
  if (list.empty()) return;
  if (std::ranges::all_of(list, &json::Value::is_string)) {
    for (const json::Value& text : list) request.texts.push_back(text.as_string());
    return;
  }
  const FieldRule id_rule{.min = 0};
  if (std::ranges::all_of(list, &json::Value::is_array)) {
    for (size_t i = 0; i < list.size(); ++i) {
      const json::Value::Array& elements = list[i].as_array();
      std::vector<int64_t> ids(elements.size());
      for (size_t j = 0; j < elements.size(); ++j) {
        if (ReadValue(elements[j], id_rule, ids[j])) continue;
        // As in vLLM, the first error is that the list does not consist of token ids.
        reader.Add("prompt.0", kTokenId, list[0]);
        return reader.Add(fmt::format("prompt.{}.{}", i, j), kTokenId, elements[j]);
      }
      request.ids.push_back(std::move(ids));
    }
    return;
  }
  std::vector<int64_t> ids(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (!ReadValue(list[i], id_rule, ids[i]))
      return reader.Add(fmt::format("prompt.{}", i), kTokenId, list[i]);
  }
  request.ids.push_back(std::move(ids));
}

// Reads a string or a list of strings.
void ReadRows(FieldReader& reader, CompletionRequest& request) {
  const json::Value* const rows = reader.Raw("prompt_embeds");
  if (rows == nullptr) return;
  if (rows->is_string()) {
    request.rows.push_back(rows->as_string());
  } else if (rows->is_array() && std::ranges::all_of(rows->as_array(), &json::Value::is_string)) {
    for (const json::Value& tensor : rows->as_array()) request.rows.push_back(tensor.as_string());
  } else {
    reader.Add("prompt_embeds", "a string, or a list of strings", *rows);
  }
}

// Refuses options that do not work with prompts that are embeddings.
ApiStatus CheckRows(const CompletionRequest& request, const ServerConfig& config) {
  if (request.rows.empty()) return {};
  if (!config.enable_prompt_embeds) {
    return BadParameter("You must set `--enable-prompt-embeds` to input `prompt_embeds`.",
                        "prompt_embeds");
  }
  const SamplingFields& sampling = request.sampling;
  if (request.echo) return BadParameter("Echo is unsupported with prompt embeds.", "echo");
  if (sampling.prompt_logprobs)
    return BadParameter("prompt_logprobs is not compatible with prompt embeds.", "prompt_logprobs");
  if (sampling.use_beam_search)
    return Unsupported("beam search behind embeddings", "use_beam_search");
  if (sampling.truncate_prompt_tokens)
    return Unsupported("a limit on the tokens of embeddings", "truncate_prompt_tokens");
  return {};
}

}  // namespace

ApiResult<CompletionRequest> ReadCompletionRequest(const json::Value& body,
                                                   const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  const json::Value* prompt = body.Find("prompt");
  const json::Value* embeds = body.Find("prompt_embeds");
  const bool has_embeds = embeds != nullptr && !embeds->is_null() &&
                          !(embeds->is_array() && embeds->as_array().empty());
  const bool has_prompt = prompt != nullptr && !prompt->is_null() &&
                          !(prompt->is_string() && prompt->as_string().empty());
  if (!has_prompt && !has_embeds) {
    return BadParameter("Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
  }
  API_RETURN_IF_ERROR(CheckRawFields(body, EndpointKind::kCompletion));

  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  CompletionRequest request;
  if (has_prompt) ReadPrompt(reader, request);
  ReadRows(reader, request);
  request.sampling = ReadSamplingFields(reader, config);
  reader.Read("echo", request.echo, {.nullable = true});
  reader.Read("add_special_tokens", request.add_special_tokens);
  // vLLM lacks the field, so its dialect ignores it.
  if (config.dialect != ApiDialect::kVllm)
    reader.Read("detokenize", request.detokenize, {.nullable = true});
  reader.Read("logprobs", request.sampling.logprobs);
  reader.Read("logprob_token_ids", request.sampling.logprob_token_ids, {.within_int64 = true});
  request.sampling.max_tokens = 16;
  reader.Read("max_tokens", request.sampling.max_tokens);
  if (!errors.empty()) return ValidationFailed(errors);

  API_RETURN_IF_ERROR(RefuseUnsupported(body, config, EndpointKind::kCompletion));
  API_RETURN_IF_ERROR(CheckRows(request, config));
  API_ASSIGN_OR_RETURN(request.sampling.constraint,
                       ReadConstraint(body, config, EndpointKind::kCompletion));
  const size_t count = request.rows.size() + request.texts.size() + request.ids.size();
  if (count == 0) return BadRequest("You must pass at least one prompt");
  if (count > static_cast<size_t>(config.max_completion_prompts)) {
    return BadParameter(fmt::format("at most {} prompts fit into one request, got {}",
                                    config.max_completion_prompts, count),
                        "prompt");
  }
  return request;
}

}  // namespace sluice
