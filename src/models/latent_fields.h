// Fields of config.json that families with latent attention share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// What the fields are where config.json leaves them out.
struct LatentDefaults {
  int64_t q_rank = 0;  // 0: q is made of the hidden rows
  int64_t kv_rank = 0;
  int64_t nope_dim = 0;
  int64_t value_dim = 0;  // 0: hidden_size / num_attention_heads
  // Whether rope rotates neighbours, and whether `rope_interleave` says so.
  bool interleaved = true;
  bool reads_interleaved = true;
};

// Makes the attention of all layers latent. Sizes that the kernels do not take are kUnsupported.
// Source: transformers' DeepseekV3Attention.
Status ReadLatentAttention(const JsonFields& fields, const LatentDefaults& defaults,
                           ModelConfig& config);

// Which layers have experts: those that mlp_layer_types calls sparse, or where there is no such
// list those after the first first_k_dense_replace (`dense` where it is not given).
Result<std::vector<bool>> ReadLayersWithExperts(const JsonFields& fields, const ModelConfig& config,
                                                int64_t dense);

// What families of DeepSeek's kind leave out of their experts.
struct DeepseekExpertDefaults {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  int64_t shared = 1;
  double weight_scale = 1;
  bool normalize = true;
  int64_t groups = 1, kept_groups = 1;
  int64_t dense = 0;         // first layers
  int64_t draft_layers = 1;  // num_nextn_predict_layers
};

// Gives the layers their experts, beside one that every token passes. `moe`: what differs otherwise
// (score, choice_bias, group_best). Source: transformers' DeepseekV3MoE.
Status ReadDeepseekExperts(const JsonFields& fields, const DeepseekExpertDefaults& defaults,
                           MoeSpec moe, ModelConfig& config);

// The same of V3's: experts by sigmoids with a bias for the choice alone; and the layers that
// follow in the file and propose further tokens. Fields that name another way are kUnsupported.
Status ReadSigmoidExperts(const JsonFields& fields, const DeepseekExpertDefaults& defaults,
                          ModelConfig& config);

// kUnsupported that names `field`, a name of how something is computed, unless it is one of `known`
// or not given.
Status CheckMethod(const JsonFields& fields, const char* field,
                   std::initializer_list<std::string_view> known);

}  // namespace sluice
