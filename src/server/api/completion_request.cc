#include "server/api/completion_request.h"

#include <algorithm>

#include <fmt/format.h>

namespace sluice {
namespace {

// A string, strings, ids or lists of ids; errors are those of all four branches, as pydantic
// reports a union.
void ReadPrompt(FieldReader& reader, CompletionRequest& request) {
  const json::Value* prompt = reader.Raw("prompt");
  if (prompt == nullptr) return;
  if (prompt->is_string()) {
    request.texts.push_back(prompt->as_string());
    return;
  }
  const IntRange id_range{.min = 0};
  std::vector<FieldError> errors;
  FieldReader branch(reader.object(), "body", &errors);
  if (!prompt->is_array()) {
    branch.Add("list_type", "prompt", "Input should be a valid list", *prompt);
    branch.Add("list_type", "prompt", "Input should be a valid list", *prompt);
    branch.Add("string_type", "prompt", "Input should be a valid string", *prompt);
    branch.Add("list_type", "prompt", "Input should be a valid list", *prompt);
  } else {
    const json::Value::Array& list = prompt->as_array();
    const auto all = [&](auto&& is) { return std::all_of(list.begin(), list.end(), is); };
    if (!list.empty() && all([](const json::Value& v) { return v.is_string(); })) {
      for (const json::Value& text : list) request.texts.push_back(text.as_string());
      return;
    }
    // Ids of one prompt.
    if (std::optional<std::vector<int64_t>> ids = branch.OptionalInts("prompt", id_range);
        errors.empty()) {
      if (!list.empty()) request.ids.push_back(std::move(*ids));
      return;
    }
    // Ids of several.
    std::vector<FieldError> nested_errors;
    FieldReader nested(reader.object(), "body", &nested_errors);
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = fmt::format("prompt.{}", i);
      if (!list[i].is_array()) {
        nested.Add("list_type", place, "Input should be a valid list", list[i]);
        continue;
      }
      std::vector<int64_t> ids;
      for (size_t j = 0; j < list[i].as_array().size(); ++j) {
        const json::Value& element = list[i].as_array()[j];
        if (const auto id = nested.ParseInt(element, fmt::format("{}.{}", place, j), id_range))
          ids.push_back(*id);
      }
      request.ids.push_back(std::move(ids));
    }
    if (nested_errors.empty()) return;
    request.ids.clear();
    for (FieldError& error : nested_errors) branch.Append(std::move(error));
    branch.Add("string_type", "prompt", "Input should be a valid string", *prompt);
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_string()) {
        branch.Add("string_type", fmt::format("prompt.{}", i), "Input should be a valid string",
                   list[i]);
      }
    }
  }
  for (FieldError& error : errors) reader.Append(std::move(error));
}

}  // namespace

ApiResult<CompletionRequest> ReadCompletionRequest(const json::Value& body,
                                                   const ServerConfig& config) {
  if (!body.is_object()) return NotAnObject(body);
  const json::Value* prompt = body.Find("prompt");
  const json::Value* embeds = body.Find("prompt_embeds");
  const bool no_embeds = embeds == nullptr || embeds->is_null();
  const bool no_prompt = prompt == nullptr || prompt->is_null() ||
                         (prompt->is_string() && prompt->as_string().empty());
  if (no_prompt && no_embeds) {
    return BadParameter("Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
  }
  API_RETURN_IF_ERROR(CheckRawFields(body, /*is_chat=*/false));

  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  CompletionRequest request;
  ReadPrompt(reader, request);
  request.sampling = ReadSamplingFields(reader, config);
  request.echo = reader.OptionalBool("echo").value_or(false);
  request.add_special_tokens = reader.Bool("add_special_tokens", true);
  // vLLM does not know this one and ignores it.
  if (config.dialect != ApiDialect::kVllm)
    request.detokenize = reader.OptionalBool("detokenize").value_or(true);
  request.sampling.logprobs = reader.OptionalInt("logprobs");
  request.sampling.max_tokens = reader.OptionalInt("max_tokens").value_or(16);
  if (!errors.empty()) return ValidationFailed(errors);

  if (!no_embeds) {
    return BadParameter(
        "Prompts given as embeddings are not supported by this server; send `prompt`",
        "prompt_embeds");
  }
  if (const json::Value* suffix = reader.Raw("suffix")) {
    (void)suffix;
    ApiError error;
    error.message = "suffix is only supported for models with FIM completion rendering";
    error.param = "suffix";
    return tl::unexpected<ApiError>(std::move(error));
  }
  API_RETURN_IF_ERROR(RefuseUnsupported(reader, /*is_chat=*/false));
  if (config.dialect != ApiDialect::kVllm) API_RETURN_IF_ERROR(RefuseTrtllmFields(reader));
  const size_t count = request.texts.size() + request.ids.size();
  if (count == 0) return BadRequest("You must pass at least one prompt");
  if (count > static_cast<size_t>(config.max_completion_prompts)) {
    return BadParameter(fmt::format("at most {} prompts fit into one request, got {}",
                                    config.max_completion_prompts, count),
                        "prompt");
  }
  return request;
}

}  // namespace sluice
