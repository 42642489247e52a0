// What a config.json says of single layers: which positions they see, and where experts stand in
// for the MLP.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"

namespace sluice {

class JsonFields;
struct ModelConfig;

// How one layer attends.
struct LayerAttention {
  bool rope = true;    // false: positions are not coded into q and k
  int64_t chunk = 0;   // sees the positions of its own chunk of this many; 0: no chunks
  int64_t window = 0;  // sees the last `window` positions, itself included; 0: all

  friend bool operator==(const LayerAttention&, const LayerAttention&) = default;
};

// A mixture of experts in place of the MLP.
struct ExpertsConfig {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t intermediate_size = 0;  // of each
  bool normalize = false;         // norm_topk_prob: the chosen experts' weights add up to 1
  bool has_shared = false;        // one more, as wide, that every token visits
  std::vector<bool> layers;       // [num_hidden_layers]: which have experts
};

// Llama 4: q of a layer without rope is multiplied by log(floor((position + 1) / floor_scale) + 1)
// * attn_scale + 1.
struct TemperatureTuning {
  double floor_scale = 0;
  double attn_scale = 0;
};

// Readers of the fields that differ from family to family. They fill `layer_attention` and, where
// the family has them, `experts`, `temperature_tuning`, `use_qk_norm` and `intermediate_size`;
// `num_hidden_layers` is known. A setting that would change what the model computes and that is not
// implemented is kUnsupported.
Status ReadFullAttention(const JsonFields& fields, ModelConfig& config);     // Llama 3
Status ReadSlidingAttention(const JsonFields& fields, ModelConfig& config);  // Qwen 2 and 3
Status ReadMistralAttention(const JsonFields& fields, ModelConfig& config);
Status ReadQwen3MoeLayers(const JsonFields& fields, ModelConfig& config);
Status ReadLlama4Layers(const JsonFields& fields, ModelConfig& config);

}  // namespace sluice
