// Computes angular frequencies of RoPE, with all scalings that config.json can specify.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/rope_config.h"
#include "models/decoder_spec.h"

namespace sluice {

// Returns a table for DecoderSpec::rope_tables: F32 [rotary_dim / 2]. The frequencies do not depend
// on the sequence length, so that keys in the cache stay valid as a sequence grows. They do not
// include the attention factor. For kLongRope and kDynamic, returns the table for contexts within
// the original positions. Source: transformers modeling_rope_utils.py.
std::vector<float> RopeTableOf(const RopeConfig& rope, int64_t rotary_dim);

// Sets the tables of `spec`: first the table from `rope`, then `others`.
// DecoderSpec::long_rope_table is the long table of kLongRope or, as in vLLM, the table of kDynamic
// for the maximum context.
void DescribeRope(const RopeConfig& rope, int64_t rotary_dim, DecoderSpec& spec,
                  std::vector<std::vector<float>> others = {});

// Returns the longest context with `rope` if config.json specifies `positions`. As in vLLM,
// `positions` already includes the scaling of kinds llama3 and longrope. Other kinds multiply
// `positions`; YaRN multiplies the original positions.
int64_t ScaledPositions(const RopeConfig& rope, int64_t positions);

}  // namespace sluice
