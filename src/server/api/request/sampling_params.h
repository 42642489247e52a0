// Converts the fields of a request to the settings of a sequence: checks ranges and fills in
// defaults. Errors: 400 for a value out of range.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/request.h"
#include "server/api/common/api_error.h"
#include "server/api/common/model_context.h"
#include "server/api/request/sampling_fields.h"

namespace sluice {

// Returns all settings except max_tokens.
ApiResult<SamplingParams> ResolveSampling(const SamplingFields& fields, const ModelContext& model);

// Returns the number of tokens that may follow a prompt of `prompt_tokens`. Also checks that
// min_tokens does not exceed it.
ApiResult<int64_t> ResolveMaxTokens(const SamplingFields& fields, const ModelContext& model,
                                    int64_t prompt_tokens);

// Limits the length of an id or a salt, because the server keeps many copies of each.
ApiStatus CheckNameLength(std::string_view field, std::string_view value);

}  // namespace sluice
