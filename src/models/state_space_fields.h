// Readers of config.json fields of families with Mamba-2.
#pragma once

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// The mixer that mamba_n_heads, mamba_d_head, mamba_d_state, ... describe, named "mamba", with a
// norm of groups after the gate, as Bamba and Granite 4 have it. `width`: of all heads together,
// which mamba_n_heads and mamba_d_head must give; -1: mamba_expand times hidden_size.
Result<MixerSpec> ReadStateSpace(const JsonFields& fields, const ModelConfig& config,
                                 int64_t width = -1);

// The limits of steps that `name` gives, a list of two numbers.
Status ReadStepLimits(const JsonFields& fields, const char* name, MixerSpec& mixer);

}  // namespace sluice
