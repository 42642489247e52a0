// Checks the preconditions of a step, for all models.
#pragma once

#include "models/decoder_spec.h"
#include "models/kv_cache.h"
#include "models/model.h"

namespace sluice {

// CHECKs the input against the limits, and the cache against the options.
void CheckStepInput(const DecoderSpec& spec, const ModelOptions& options, const StepInput& input,
                    const KvCache& cache, bool takes_drawn_tokens = false);

}  // namespace sluice
