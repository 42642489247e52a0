// The parameters of a decoder: where they live in memory, and what the checkpoint calls them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/scheme.h"
#include "kernels/matrix.h"
#include "models/decoder_spec.h"
#include "models/drafter_spec.h"
#include "models/row_range.h"
#include "models/shard.h"
#include "tensor/activation_format.h"

namespace sluice {

// What the checkpoint's scheme does to the inputs of a linear layer.
struct LinearInputs {
  ActivationFormat format;
  float scale = 1;  // the stored scale of kFp8Static and kInt8Static, the global one of kNvfp4

  friend bool operator==(const LinearInputs&, const LinearInputs&) = default;
};

struct LinearWeights {
  kernels::PackedMatrix matrix;  // [out, in]
  std::vector<float> bias;       // [out], or empty
  LinearInputs inputs;
  int lora_layer = -1;  // index into LoraLayout::layers; -1: no adapter changes it
};

// The same linear layer of every expert.
struct ExpertWeights {
  std::vector<kernels::PackedMatrix> matrices;  // [experts] of [out, in]
  std::vector<LinearInputs> inputs;             // [experts]
  std::vector<float> bias;                      // [experts, out], or empty
  // Index into LoraLayout::layers of the first expert's layer, which those of the others follow;
  // -1: no adapter changes them.
  int lora_layer = -1;
};

struct AttentionWeights {
  // [q_width + 2 * kv_width, hidden]: rows of q, then k, then v; without those that the layer has
  // not (AttentionSpec::values_are_keys and kv_layer).
  LinearWeights qkv;
  // [head_dim], with QkNorm::kWholeWidth [q_width] and [kv_width], or empty.
  std::vector<float> q_norm, k_norm;
  std::vector<float> v_norm;  // [head_dim] of ones, where values are normed; or empty
  // QkNorm::kLayerBeforeRope: q_norm and k_norm are [head_dim], or of each head; biases alike, or
  // empty.
  std::vector<float> q_norm_bias, k_norm_bias;
  LinearWeights gate;              // AttentionSpec::gate, or empty
  std::vector<float> gate_bias;    // [num_heads], or empty
  std::vector<float> output_norm;  // [all ranks' output_width], or empty
  LinearWeights output;            // [hidden, q_width]
  std::vector<float> sinks;        // [num_heads], or empty
  KvScales kv_scales;              // of an FP8 cache
  // Latent attention, else empty. `qkv` is then [first_width, hidden]: rows of q_a, or of q if
  // there is no q_rank, then of the latent vector and of the shared key; q_norm is [q_rank] and
  // k_norm [kv_rank].
  LinearWeights q_b;       // [num_heads * (nope_dim + rope_dim), q_rank]
  ExpertWeights key_up;    // of each head [kv_rank, nope_dim]: W_UK, transposed
  ExpertWeights value_up;  // of each head [value_dim, kv_rank]: W_UV
  // An indexer of its own (IndexerSpec), else empty.
  LinearWeights index_q;                           // [heads * head_dim, q_rank]
  LinearWeights index_k;                           // [head_dim, hidden]
  LinearWeights index_weights;                     // [heads, hidden]
  std::vector<float> index_norm, index_norm_bias;  // [head_dim] each
};

// MixerSpec. Of Mamba-2 q, k and v are C, B and x.
struct MixerWeights {
  // [InputRows(), hidden]: rows of B, C, x of a short convolution; else of q, k, v, z, and of
  // Mamba-2 of the steps.
  LinearWeights in;
  // The delta rule: rows of b, then a [2 * num_heads, hidden]; with decays of keys rows of b, then
  // of f_proj [num_heads * key_dim], unless two products make the latter.
  LinearWeights steps;
  // MixerSpec::low_rank: what decays and z are made of [low_rank, hidden], and of that [num_heads *
  // key_dim or values_width, low_rank]; or empty.
  LinearWeights decay_down, decay_up, gate_down, gate_up;
  std::vector<float> conv;       // [conv_width, conv_channels]
  std::vector<float> conv_bias;  // [conv_channels], or empty
  // [num_heads] each, with decays of keys step_bias [num_heads * key_dim]; or empty.
  std::vector<float> a_log, step_bias, skip;
  std::vector<float> norm;  // [head_dim] or [values_width], or empty
  LinearWeights output;     // [hidden, values_width]
};

struct MlpWeights {
  LinearWeights gate_up;          // [2 * intermediate, hidden]: rows of gate, then up; or up alone
  LinearWeights down;             // [hidden, intermediate]
  LinearWeights output_gate;      // [1, hidden], or empty
  std::vector<float> inner_norm;  // [all ranks' intermediate], or empty
  // Activation::kXielu: alpha_p, alpha_n, beta and eps as stored, or empty.
  std::vector<float> activation;
};

struct MoeWeights {
  LinearWeights router;            // [experts, hidden]
  std::vector<float> choice_bias;  // [experts], or empty
  ExpertWeights gate_up;           // [2 * intermediate, hidden] each, or up alone
  ExpertWeights down;              // [hidden, intermediate] each
  // MoeSpec::latent, whose width stands for hidden in gate_up and down; or empty.
  LinearWeights latent_down, latent_up;
  // MoeSpec::own_norms: [hidden] each, and [experts]; or empty.
  std::vector<float> router_norm, mlp_after, experts_before, experts_after, expert_factors;
};

// LayerEmbeddingSpec, of one layer.
struct LayerEmbeddingWeights {
  LinearWeights gate;        // [width, hidden]
  LinearWeights projection;  // [hidden, width]
  std::vector<float> norm;   // [hidden]
};

// The norms around a sub-layer.
struct NormWeights {
  std::vector<float> before, after;  // [hidden], or empty
  std::vector<float> before_bias;    // [hidden] of a layer norm, or empty
};

struct LayerWeights {
  NormWeights attention_norms;
  AttentionWeights attention;
  MixerWeights mixer;
  NormWeights mlp_norms;
  MlpWeights mlp;
  MoeWeights moe;
  LayerEmbeddingWeights embedding;
  std::vector<float> residual_factor;  // [1], or empty
};

// DrafterSpec.
struct DrafterWeights {
  LinearWeights projection;                    // [hidden, 2 * hidden], or [hidden, target_width()]
  std::vector<float> token_norm, hidden_norm;  // [hidden] each
};

struct DecoderWeights {
  kernels::PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;       // [hidden]
  std::vector<float> final_norm_bias;  // [hidden] of a layer norm, or empty
  std::vector<float> embedding_norm;   // [hidden] of ones: DecoderSpec::norms_embedding; or empty
  std::vector<float> positions;        // DecoderSpec::positions: [first + rows, hidden]; or empty
  // LayerEmbeddingSpec, or empty.
  kernels::PackedMatrix layer_embeddings;  // [its vocab, layers * width]
  LinearWeights layer_projection;          // [layers * width, hidden]
  std::vector<float> layer_norm;           // [width]
  LinearWeights head;                      // [vocab, hidden]; empty unless DecoderSpec::LoadsHead
  std::vector<float> scores;  // [num_scores, hidden]; empty but for HeadSpec::Kind::kScores
  // As LinearWeights::lora_layer.
  int embedding_lora = -1, head_lora = -1;
  DrafterWeights drafter;  // of a drafting head, or empty
};

// Rows of a matrix, or elements of a vector. The part of a matrix is named by its module
// ("model.layers.0.mlp.up_proj"; the scheme knows the names of its tensors), that of a vector by
// its tensor ("model.norm.weight").
struct ParameterPart {
  std::string name;
  int64_t rows = 0;                   // in the checkpoint
  std::optional<RowRange> held = {};  // of them, what a rank holds; none: all
  float factor = 1;                   // of the numbers of a vector
  // For a matrix: if not "", the tensor of all experts that contains this part of
  // FusedExpert::expert.
  std::string fused = {};

  RowRange held_rows() const { return held.value_or(RowRange{0, rows}); }
};

// The matrix of one expert inside a tensor of all experts: [experts, rows, cols], or [experts,
// cols, rows] where `transposed`. With `either` the tensor's shape counts before `transposed`.
struct FusedExpert {
  std::string module;  // "model.layers.0.mlp.experts.gate_up_proj"
  int64_t expert = 0;
  int64_t num_experts = 0;
  bool transposed = false;
  bool either = false;
  // The tensor is [experts * intermediate size, hidden size], in which an expert's matrix has
  // transposed rows where `transposed`.
  bool flat = false;
};

// Some rows of a module's matrix as a matrix of their own, by their values: whatever the module's
// format, they become plain numbers. The module is the name of the only part, whose rows are those
// in memory.
struct TakenRows {
  int64_t module_rows = 0, module_cols = 0;
  RowRange rows = {};
  bool transposed = false;  // [cols, rows]
};

// A matrix [sum of rows that are held, cols] in memory, filled by one or more modules' weights
// [rows, cols], one below the other; or, where the checkpoint has the tensor of `fused`, by that
// one alone.
struct MatrixParameter {
  std::vector<ParameterPart> parts;
  int64_t cols = 0;
  kernels::PackedMatrix* target = nullptr;
  LinearInputs* inputs = nullptr;   // may be null
  LinearWeights* linear = nullptr;  // that an adapter may change; null: none does
  std::optional<FusedExpert> fused = {};
  std::optional<TakenRows> taken = {};
  ExpertWeights* experts = nullptr;  // whose matrix number fused->expert it is
  // Not empty: all parts are of a tensor of this shape, whose sizes but the first are its columns;
  // or, where it `is_transposed`, [columns, rows]. The tensor has the part's name; that of a
  // `linear` layer is its module's "weight".
  std::vector<int64_t> shape = {};
  bool is_transposed = false;
  // No product of rounded inputs reads it (the embedding, the router): devices hold it as BF16.
  bool plain_on_device = false;

  int64_t rows() const;         // in memory
  int64_t stored_rows() const;  // of all parts in the checkpoint
};

// A vector of F32 in memory, of what is held of one or more tensors [rows], one after the other
// (neighbours of one name are pieces of one tensor); or a small matrix that no kernel multiplies.
struct VectorParameter {
  enum class Kind { kNorm, kBias };
  Kind kind = Kind::kNorm;
  std::vector<ParameterPart> parts;
  std::vector<float>* target = nullptr;
  float offset = 0;  // added to every stored number
  float factor = 1;  // of every stored number
  int64_t width =
      0;  // not 0: the tensors are [rows / width, width], and their rows follow each other
  // Not 0: the tensors are [rows / taps, 1, taps], the weights of convolutions, and the target is
  // [taps, rows / taps]. Their parts are counted in numbers.
  int64_t taps = 0;
  // Not empty: tensors, one after the other, that stand for the one that all parts name, wherever
  // each ends.
  std::vector<std::string> joined = {};
  // Not empty: the shape of the only part's tensor.
  std::vector<int64_t> shape = {};
  bool allows_infinite = false;  // numbers may be infinite
  bool is_optional = false;      // zeros stand for a tensor that the checkpoint has not

  int64_t rows() const;
};

// The scales of one layer's FP8 keys and values.
struct KvScaleParameter {
  std::string attention;  // "model.layers.0.self_attn"
  KvScales* target = nullptr;
};

// Every parameter of the decoder, each exactly once.
struct ParameterList {
  std::vector<MatrixParameter> matrices;
  std::vector<VectorParameter> vectors;
  std::vector<KvScaleParameter> kv_scales;
  // What names of tensors begin with that may be in a checkpoint and are not computed with.
  std::vector<std::string> unread;
  // The checkpoint holds another model besides, whose tensors are not looked at.
  bool is_part = false;
};

// Lists the parameters of `spec` that the rank at `place` holds, with targets in `weights`, whose
// layers are made here. `drafter`: of a drafting head, else null.
ParameterList ListParameters(const DecoderSpec& spec, DecoderWeights& weights,
                             const RankPlace& place = {}, const DrafterSpec* drafter = nullptr);

}  // namespace sluice
