// Reads config.json fields of families with Mamba-2.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Returns the mixer "mamba" that mamba_n_heads, mamba_d_head, mamba_d_state, ... describe, with a
// norm over groups after the gate, as in Bamba and Granite 4. `width`: must equal mamba_n_heads *
// mamba_d_head; -1: mamba_expand * hidden_size.
Result<MixerSpec> ReadStateSpace(const JsonFields& fields, const ModelConfig& config,
                                 int64_t width = -1);

struct StateSpaceSizes {
  int64_t taps = 0;  // of the convolution
  int64_t heads = 0, groups = 0, head_dim = 0;
  int64_t state = 0;                    // numbers per head and channel
  std::optional<bool> conv_bias, bias;  // nullopt: a bias of the convolution, none of projections
};
// Returns a mixer of Mamba-2 with a norm of groups after the gate. `module`: MixerSpec::module.
MixerSpec StateSpaceMixer(const char* module, const StateSpaceSizes& sizes, double norm_eps);

// Reads the limits of Mamba-2's steps from `name`, a list of two numbers.
Status ReadStepLimits(const JsonFields& fields, const char* name, MixerSpec& mixer);

}  // namespace sluice
