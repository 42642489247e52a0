// Reads config.json fields of families with Mamba-2.
#pragma once

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Returns the mixer "mamba" that mamba_n_heads, mamba_d_head, mamba_d_state, ... describe, with a
// norm of groups after the gate, as in Bamba and Granite 4. `width`: must equal mamba_n_heads *
// mamba_d_head; -1: mamba_expand * hidden_size.
Result<MixerSpec> ReadStateSpace(const JsonFields& fields, const ModelConfig& config,
                                 int64_t width = -1);

// Reads the limits of Mamba-2's steps from `name`, a list of two numbers.
Status ReadStepLimits(const JsonFields& fields, const char* name, MixerSpec& mixer);

}  // namespace sluice
