// The angular frequencies of rope, with every scaling that config.json can ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/rope_config.h"
#include "models/decoder_spec.h"

namespace sluice {

// For DecoderSpec::rope_tables: [rotary_dim / 2], F32. They do not depend on the length of a
// sequence, so that keys in the cache stay right as it grows. The attention factor is not in them.
// For kLongRope and kDynamic this is the table of contexts up to the original positions. Source:
// transformers modeling_rope_utils.py.
std::vector<float> RopeTableOf(const RopeConfig& rope, int64_t rotary_dim);

// Writes the tables of `rope` into `spec`, `others` after the first: DecoderSpec::long_rope_table
// is that of kLongRope, or, as vLLM makes it, that of kDynamic for the longest context of all.
void DescribeRope(const RopeConfig& rope, int64_t rotary_dim, DecoderSpec& spec,
                  std::vector<std::vector<float>> others = {});

// The longest context that `rope` is made for, where config.json says `positions`. As vLLM derives
// it: llama3's scaling and longrope's are within them, the others multiply them, or the original
// ones of YaRN.
int64_t ScaledPositions(const RopeConfig& rope, int64_t positions);

}  // namespace sluice
