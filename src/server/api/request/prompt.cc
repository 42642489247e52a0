#include "server/api/request/prompt.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/base64.h"
#include "base/utf8.h"
#include "checkpoint/torch_file.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

// Number of tokens to keep. A negative truncate_prompt_tokens means the context length.
int64_t TruncatedLength(const SamplingFields& fields, const ModelContext& model) {
  return *fields.truncate_prompt_tokens < 0 ? model.max_model_len : *fields.truncate_prompt_tokens;
}

// Number of tokens of a text to keep; nullopt if a text that is too long is refused.
std::optional<int64_t> KeptOfText(const SamplingFields& fields, const ModelContext& model) {
  if (fields.truncate_prompt_tokens) return TruncatedLength(fields, model);
  const auto& pooling = model.engine->info().pooling;
  if (pooling && pooling->truncates && !fields.refuses_long_texts) return model.max_model_len;
  return std::nullopt;
}

void Truncate(std::vector<int32_t>& tokens, int64_t length, const std::string& side) {
  const size_t keep = static_cast<size_t>(length);
  if (tokens.size() <= keep) return;
  if (side == "right") {
    tokens.resize(keep);
  } else {
    tokens.erase(tokens.begin(), tokens.end() - static_cast<int64_t>(keep));
  }
}

// Encodes and truncates a text, on the left as in vLLM, for pooling models on the right. Keeps the
// special tokens that the tokenizer puts around it.
ApiResult<std::vector<int32_t>> EncodeTruncated(const ModelContext& model, std::string_view text,
                                                bool add_special_tokens, int64_t length) {
  const std::string side = model.engine->info().pooling ? "right" : "left";
  API_ASSIGN_OR_RETURN(std::vector<int32_t> full, EncodeText(model, text, add_special_tokens));
  if (static_cast<int64_t>(full.size()) <= length || !add_special_tokens) {
    Truncate(full, length, side);
    return full;
  }
  API_ASSIGN_OR_RETURN(std::vector<int32_t> content, EncodeText(model, text, false));
  const auto begin = std::search(full.begin(), full.end(), content.begin(), content.end());
  if (begin == full.end()) {
    Truncate(full, length, side);
    return full;
  }
  const int64_t num_special = static_cast<int64_t>(full.size() - content.size());
  std::vector<int32_t> result(full.begin(), begin);
  const std::vector<int32_t> suffix(begin + static_cast<int64_t>(content.size()), full.end());
  Truncate(content, std::max<int64_t>(length - num_special, 0), side);
  result.insert(result.end(), content.begin(), content.end());
  result.insert(result.end(), suffix.begin(), suffix.end());
  if (static_cast<int64_t>(result.size()) > length) result.resize(static_cast<size_t>(length));
  return result;
}

ApiStatus CheckLength(size_t count, const ModelContext& model) {
  const int64_t length = static_cast<int64_t>(count);
  if (length == 0) return BadRequest("The decoder prompt cannot be empty");
  if (length <= model.max_model_len) return {};
  return BadParameter(fmt::format("This model's maximum context length is {} tokens. However, your "
                                  "prompt contains {} input tokens, which "
                                  "exceeds this limit even without any output tokens. Please "
                                  "reduce the length of the input prompt.",
                                  model.max_model_len, length),
                      "input_tokens", std::to_string(length));
}

}  // namespace

ApiResult<std::vector<int32_t>> EncodeText(const ModelContext& model, std::string_view text,
                                           bool add_special_tokens,
                                           const std::function<bool()>& stop) {
  Result<std::vector<int32_t>> ids = model.tokenizer->EncodeWithin(text, add_special_tokens, stop);
  if (!ids) return tl::unexpected<ApiError>(FromError(ids.error()));
  return *std::move(ids);
}

ApiStatus CheckCharacters(std::string_view text, const ModelContext& model) {
  const size_t characters = CountCharacters(text);
  if (characters <= model.max_prompt_characters) return {};
  return BadParameter(
      fmt::format("This model's maximum context length is {} tokens. However, your prompt contains "
                  "{} characters (more than {} characters, which is the upper bound for {} input "
                  "tokens). Please reduce the length of the input prompt.",
                  model.max_model_len, characters, model.max_prompt_characters,
                  model.max_model_len),
      "input_text", std::to_string(characters));
}

ApiResult<Prompt> PromptFromText(std::string text, bool add_special_tokens,
                                 const SamplingFields& fields, const ModelContext& model) {
  // A body cannot contain invalid UTF-8, but a template can produce it.
  if (!IsValidUtf8(text)) return BadRequest("the prompt is not valid UTF-8");
  Prompt prompt;
  const std::optional<int64_t> kept = KeptOfText(fields, model);
  if (kept && fields.truncation_side) {
    API_ASSIGN_OR_RETURN(prompt.tokens, EncodeText(model, text, add_special_tokens));
    Truncate(prompt.tokens, *kept, *fields.truncation_side);
  } else if (kept) {
    API_ASSIGN_OR_RETURN(prompt.tokens, EncodeTruncated(model, text, add_special_tokens, *kept));
  } else {
    API_RETURN_IF_ERROR(CheckCharacters(text, model));
    API_ASSIGN_OR_RETURN(prompt.tokens, EncodeText(model, text, add_special_tokens));
  }
  API_RETURN_IF_ERROR(CheckLength(prompt.tokens.size(), model));
  prompt.text = std::move(text);
  return prompt;
}

ApiResult<Tokenizer::Pair> PairFromTexts(const std::string& first, const std::string& second,
                                         const SamplingFields& fields, const ModelContext& model) {
  std::optional<Tokenizer::PairLimit> limit;
  if (const std::optional<int64_t> kept = KeptOfText(fields, model)) {
    limit = {.tokens = static_cast<size_t>(*kept), .keeps_ends = fields.truncation_side == "left"};
  } else {
    API_RETURN_IF_ERROR(CheckCharacters(first, model));
    API_RETURN_IF_ERROR(CheckCharacters(second, model));
  }
  Result<Tokenizer::Pair> pair = model.tokenizer->EncodePair(first, second, limit);
  if (!pair) return tl::unexpected<ApiError>(FromError(pair.error()));
  API_RETURN_IF_ERROR(CheckLength(pair->ids.size(), model));
  return *std::move(pair);
}

ApiResult<Prompt> PromptFromIds(const std::vector<int64_t>& ids, const SamplingFields& fields,
                                const ModelContext& model) {
  Prompt prompt;
  size_t begin = 0, end = ids.size();
  if (fields.truncate_prompt_tokens) {
    const size_t keep = static_cast<size_t>(TruncatedLength(fields, model));
    if (ids.size() > keep) {
      if (fields.truncation_side == "right")
        end = keep;
      else
        begin = ids.size() - keep;
    }
  }
  API_RETURN_IF_ERROR(CheckLength(end - begin, model));
  prompt.tokens.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) {
    if (ids[i] < 0 || ids[i] >= model.vocab_size) {
      return BadRequest(fmt::format("Token id {} is out of vocabulary", ids[i]));
    }
    prompt.tokens.push_back(static_cast<int32_t>(ids[i]));
  }
  return prompt;
}

ApiResult<Prompt> PromptFromRows(std::string_view base64, const ModelContext& model) {
  constexpr std::string_view kField = "prompt_embeds";
  const EngineInfo& info = model.engine->info();
  const int64_t width = info.prompt_row_width;
  if (width == 0)
    return BadParameter("`prompt_embeds` are not accepted: " + info.no_prompt_rows, kField);
  Result<std::string> file = DecodeBase64(base64);
  if (!file) return BadParameter("`prompt_embeds` is not base64: " + file.error().message, kField);
  Result<TorchTensor> tensor = ReadTorchTensor(*file, model.max_model_len * width);
  if (!tensor && tensor.error().param == kTooManyValues) {
    return BadParameter(fmt::format("This model's maximum context length is {} tokens of {} "
                                    "numbers each. However, {}. Please reduce the number of rows.",
                                    model.max_model_len, width, tensor.error().message),
                        kField);
  }
  if (!tensor) return BadParameter("`prompt_embeds`: " + tensor.error().message, kField);
  std::vector<int64_t>& shape = tensor->shape;
  if (shape.size() == 3 && shape[0] == 1) shape.erase(shape.begin());
  if (shape.size() != 2 || shape[1] != width) {
    return BadParameter(fmt::format("`prompt_embeds` must be a tensor of shape [tokens, {}]; got "
                                    "[{}]",
                                    width, fmt::join(tensor->shape, ", ")),
                        kField);
  }
  if (shape[0] == 0)
    return BadParameter("`prompt_embeds` contains no rows; at least one is needed", kField);
  API_RETURN_IF_ERROR(CheckLength(static_cast<size_t>(shape[0]), model));
  if (!std::ranges::all_of(tensor->values, [](float value) { return std::isfinite(value); }))
    return BadParameter("`prompt_embeds` contains numbers that are not finite", kField);
  Prompt prompt;
  prompt.tokens.assign(static_cast<size_t>(shape[0]), 0);
  prompt.rows = std::make_shared<const PromptRows>(
      PromptRows{.width = width, .values = std::move(tensor->values)});
  return prompt;
}

}  // namespace sluice
