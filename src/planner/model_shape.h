// The dimensions of a decoder that determine memory and speed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

struct ModelShape {
  std::string name;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  bool tied_embeddings = false;
  // Dense layers have one MLP. The other num_moe_layers layers have `num_experts` experts each; a
  // token visits some of them.
  int64_t num_moe_layers = 0;
  int64_t dense_intermediate_size = 0;
  int64_t expert_intermediate_size = 0;
  // Size of the shared expert, which all tokens visit; 0: none.
  int64_t shared_intermediate_size = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t max_positions = 0;
  bool norms_whole_rows = false;  // whether q and k are normalized over all heads together

  // These functions return numbers of weights in the matrices that quantized checkpoints quantize:
  // all except the embedding and the head.
  int64_t AttentionWeights() const;
  int64_t DenseMlpWeights() const;
  int64_t SharedExpertWeights() const;
  int64_t OneExpertWeights() const;  // one expert of each layer, summed over all layers
  int64_t LinearWeights() const;     // attention, MLPs and every expert
  int64_t EmbeddingWeights() const;  // weights of one embedding table
  int64_t TotalWeights() const;
  // Returns the number of linear-layer weights that a token uses: all except those of experts that
  // are not chosen.
  int64_t ActiveWeights() const;
};

// Returns the shape of a published model by its id, ignoring organization, quantization and
// "Instruct". nullopt if unknown.
std::optional<ModelShape> PublishedShape(std::string_view model_id);

// Reads the shape from a config.json. kInvalidData names a missing field.
Result<ModelShape> ShapeOfConfig(const json::Value& config, std::string name);

}  // namespace sluice
