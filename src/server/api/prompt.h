// From the prompt of a request to token ids that fit the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/model_context.h"
#include "server/api/sampling_fields.h"

namespace sluice {

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // as given or rendered; "" for a prompt of token ids
};

// Text that cannot fit is refused before it is tokenized; what is too long afterwards names both
// lengths.
ApiResult<Prompt> PromptFromText(std::string text, bool add_special_tokens,
                                 const SamplingFields& fields, const ModelContext& model);
// Ids outside the vocabulary are refused.
ApiResult<Prompt> PromptFromIds(const std::vector<int64_t>& ids, const SamplingFields& fields,
                                const ModelContext& model);

// 400 for text that holds half of a surrogate pair.
ApiStatus CheckText(std::string_view text, std::string_view field);

}  // namespace sluice
