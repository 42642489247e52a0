// What distinguishes one decoder family from another, as data for the shared layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_config.h"
#include "kernels/rope.h"

namespace sluice {

struct AttentionSpec {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  bool has_bias = false;  // on q, k, v and o
  bool qk_norm = false;   // RMS norm of each head of q and k, before rope
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

struct MlpSpec {
  int64_t intermediate_size = 0;
  bool has_bias = false;  // on gate, up and down
};

struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;
};

// A pre-norm decoder: embedding, layers, final norm, head.
struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  bool tied_head = false;  // the head is the embedding's table
  float norm_eps = 0;
  std::vector<float> rope_frequencies;  // [head_dim / 2]
  std::vector<LayerSpec> layers;        // all with the same attention shape
};

// A family of models: the name that config.json's `architectures` gives it, and its description.
struct ModelFamily {
  const char* architecture;
  Result<DecoderSpec> (*describe)(const ModelConfig& config);
};

// The decoder that config.json describes without any peculiarity: the start of every family's
// description.
DecoderSpec DescribePlainDecoder(const ModelConfig& config);

}  // namespace sluice
