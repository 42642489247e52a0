// A request's rules about single tokens: biases, stop ids, allowed ids, forbidden words.
#pragma once

#include "engine/request.h"
#include "server/api/common/api_error.h"
#include "server/api/common/model_context.h"
#include "server/api/request/sampling_fields.h"

namespace sluice {

// Sets the members of `params` for these rules. Errors: 400 for ids outside the vocabulary, and for
// rules that no token can satisfy.
ApiStatus ResolveTokenRules(const SamplingFields& fields, const ModelContext& model,
                            SamplingParams& params);

}  // namespace sluice
