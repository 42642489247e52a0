// Angular frequencies of RoPE, with all scalings that config.json can specify.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/rope_config.h"
#include "models/decoder_spec.h"

namespace sluice {

// For DecoderSpec::rope_tables: [rotary_dim / 2], F32. They do not depend on the sequence length,
// so that keys in the cache stay valid as a sequence grows. Does not include the attention factor.
// For kLongRope and kDynamic, the table for contexts within the original positions. Source:
// transformers modeling_rope_utils.py.
std::vector<float> RopeTableOf(const RopeConfig& rope, int64_t rotary_dim);

// Sets the tables of `spec` from `rope`, with `others` after the first.
// DecoderSpec::long_rope_table is that of kLongRope or, as in vLLM, that of kDynamic for the
// maximum context.
void DescribeRope(const RopeConfig& rope, int64_t rotary_dim, DecoderSpec& spec,
                  std::vector<std::vector<float>> others = {});

// The longest context with `rope` if config.json gives `positions`. As in vLLM: llama3 and longrope
// scaling are included in `positions`; other kinds multiply them, YaRN the original positions.
int64_t ScaledPositions(const RopeConfig& rope, int64_t positions);

}  // namespace sluice
