// Reads config.json fields of families with latent attention.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Defaults for fields that are absent from config.json.
struct LatentDefaults {
  int64_t q_rank = 0;  // 0: q is computed directly from the hidden rows
  int64_t kv_rank = 0;
  int64_t nope_dim = 0;
  int64_t value_dim = 0;  // 0: hidden_size / num_attention_heads
  // Whether RoPE rotates adjacent pairs, and whether `rope_interleave` is read.
  bool interleaved = true;
  bool reads_interleaved = true;
};

// Reads latent attention for all layers. kUnsupported for sizes that the kernels do not support.
// Source: transformers' DeepseekV3Attention.
Status ReadLatentAttention(const JsonFields& fields, const LatentDefaults& defaults,
                           ModelConfig& config);

// Returns whether each layer has experts. These are the layers that mlp_layer_types calls sparse.
// If that field is absent, they are all layers after the first first_k_dense_replace layers
// (default: `dense`).
Result<std::vector<bool>> ReadLayersWithExperts(const JsonFields& fields, const ModelConfig& config,
                                                int64_t dense);

// Defaults for the expert fields of families that resemble DeepSeek.
struct DeepseekExpertDefaults {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  int64_t shared = 1;
  double weight_scale = 1;
  bool normalize = true;
  int64_t groups = 1, kept_groups = 1;
  int64_t dense = 0;         // number of first layers without experts
  int64_t draft_layers = 1;  // default of num_nextn_predict_layers
};

// Reads the layers' experts, and a shared expert that every token visits. `moe`: contains the
// family's score, choice_bias and group_best. Source: transformers' DeepseekV3MoE.
Status ReadDeepseekExperts(const JsonFields& fields, const DeepseekExpertDefaults& defaults,
                           MoeSpec moe, ModelConfig& config);

// Like ReadDeepseekExperts, for V3: sigmoid scores with a bias that affects only the choice of
// experts. Also reads the number of draft layers. kUnsupported if a field names another method.
Status ReadSigmoidExperts(const JsonFields& fields, const DeepseekExpertDefaults& defaults,
                          ModelConfig& config);

// Returns kUnsupported, naming `field`, if its value (the name of a method) is not in `known`. An
// absent field is accepted.
Status CheckMethod(const JsonFields& fields, const char* field,
                   std::initializer_list<std::string_view> known);

}  // namespace sluice
