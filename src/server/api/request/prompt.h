// Converts the prompts of requests to token ids that fit into the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/api/common/api_error.h"
#include "server/api/common/model_context.h"
#include "server/api/request/sampling_fields.h"

namespace sluice {

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // text as given or rendered; "" for a prompt of token ids
  std::vector<ImageInput> images;
  std::shared_ptr<const PromptRows> rows;  // rows that replace the tokens; null: none
};

// 400 for a text with more characters than the model's context can hold.
ApiStatus CheckCharacters(std::string_view text, const ModelContext& model);

// Returns the tokens of `text`. Errors: 400 for a text on which the tokenizer takes too many steps;
// 503 if `stop`, which is called periodically, returns true because no client waits for the result.
ApiResult<std::vector<int32_t>> EncodeText(const ModelContext& model, std::string_view text,
                                           bool add_special_tokens,
                                           const std::function<bool()>& stop = nullptr);

// Tokenizes `text`. Errors: the errors of EncodeText; 400 for text that is empty, not UTF-8, or too
// long. Without truncation, text with more than `max_prompt_characters` characters is refused
// before it is tokenized.
ApiResult<Prompt> PromptFromText(std::string text, bool add_special_tokens,
                                 const SamplingFields& fields, const ModelContext& model);
// Errors: 400 for ids outside the vocabulary, and for a prompt that is empty or too long.
ApiResult<Prompt> PromptFromIds(const std::vector<int64_t>& ids, const SamplingFields& fields,
                                const ModelContext& model);

// Reads a tensor [tokens, width] or [1, tokens, width] that torch.save wrote, in Base64. The
// decoder reads its rows instead of token embeddings; the tokens are placeholders. Errors: 400 for
// other contents, another width, too many rows, numbers that are not finite, and for a model that
// does not accept rows.
ApiResult<Prompt> PromptFromRows(std::string_view base64, const ModelContext& model);

// Encodes two texts as one prompt, with the special tokens that the tokenizer puts around both. If
// the request truncates, the longer text is truncated first, as in transformers. Errors: the same
// as for one text.
ApiResult<Tokenizer::Pair> PairFromTexts(const std::string& first, const std::string& second,
                                         const SamplingFields& fields, const ModelContext& model);

}  // namespace sluice
