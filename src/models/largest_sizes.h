// The largest dimensions of a decoder's layers, which determine the sizes of workspaces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/decoder_spec.h"

namespace sluice {

struct LargestSizes {
  explicit LargestSizes(const DecoderSpec& spec) {
    for (const LayerSpec& layer : spec.layers) {
      q_width = std::max(q_width, layer.attention.q_width());
      qkv_width = std::max(qkv_width, layer.attention.qkv_width());
      if (layer.attention.qk_norm == QkNorm::kWholeWidth)
        normed_heads = std::max(normed_heads, int64_t{layer.attention.num_heads});
      intermediate = std::max(intermediate, layer.mlp.intermediate_size);
      has_output_gate = has_output_gate || !layer.mlp.output_gate.empty();
      if (!layer.moe) continue;
      has_own_norms = has_own_norms || layer.moe->own_norms.has_value();
      experts = std::max(experts, layer.moe->num_experts);
      top_k = std::max(top_k, layer.moe->top_k);
      expert_intermediate = std::max(expert_intermediate, layer.moe->intermediate_size);
    }
  }

  int64_t q_width = 0;
  int64_t qkv_width = 0;
  int64_t normed_heads = 0;  // number of q heads, if one norm covers all heads
  int64_t intermediate = 0;
  int64_t experts = 0;  // 0: no layer has experts
  int64_t top_k = 0;
  int64_t expert_intermediate = 0;
  bool has_own_norms = false;    // whether any layer has MoeSpec::own_norms
  bool has_output_gate = false;  // whether any layer has MlpSpec::output_gate
};

}  // namespace sluice
