// The angular frequencies of rope, with every scaling that config.json can ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/rope_config.h"

namespace sluice {

// For DecoderSpec::rope_tables: [rotary_dim / 2], F32. They do not depend on the length of a
// sequence, so that keys in the cache stay right as it grows: dynamic scaling is that of the
// longest context. The attention factor is not in them. Source: transformers
// modeling_rope_utils.py; of dynamic scaling vLLM, whose table is made once.
std::vector<float> RopeTableOf(const RopeConfig& rope, int64_t rotary_dim);

// For DecoderSpec::long_rope_table; empty where the scaling is not kLongRope. As vLLM, the longest
// context of all decides between the two.
std::vector<float> LongRopeTableOf(const RopeConfig& rope);

// The longest context that `rope` is made for, where config.json says `positions`. As vLLM derives
// it: llama3's scaling and longrope's are within them, the others multiply them, or the original
// ones of YaRN.
int64_t ScaledPositions(const RopeConfig& rope, int64_t positions);

}  // namespace sluice
