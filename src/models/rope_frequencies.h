// The angular frequencies of rope, with every scaling that config.json can ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/rope_config.h"

namespace sluice {

// For DecoderSpec::rope_tables: [head_dim / 2], F32. They do not depend on the length of a
// sequence, so that keys in the cache stay right as it grows: dynamic scaling is that of the
// longest context. The attention factor is not in them. Source: transformers
// modeling_rope_utils.py; of dynamic scaling vLLM, whose table is made once.
std::vector<float> RopeTableOf(const RopeConfig& rope, int64_t head_dim);

// The longest context that `rope` is made for, where config.json says `positions`. As vLLM derives
// it: llama3's scaling is within them, the others multiply them, or the original ones of YaRN.
int64_t ScaledPositions(const RopeConfig& rope, int64_t positions);

}  // namespace sluice
