// The parameters of a decoder: where they are in memory, and their names in the checkpoint.
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

// How the checkpoint's scheme rounds the inputs of a linear layer.
struct LinearInputs {
  ActivationFormat format;
  float scale = 1;  // the stored scale for kFp8Static and kInt8Static, the global scale for kNvfp4

  friend bool operator==(const LinearInputs&, const LinearInputs&) = default;
};

struct LinearWeights {
  kernels::PackedMatrix matrix;  // [out, in]
  std::vector<float> bias;       // [out], or empty
  LinearInputs inputs;
  int lora_layer = -1;  // index into LoraLayout::layers; -1: no adapter changes the layer
};

// A linear layer of every expert.
struct ExpertWeights {
  std::vector<kernels::PackedMatrix> matrices;  // [experts], each [out, in]
  std::vector<LinearInputs> inputs;             // [experts]
  std::vector<float> bias;                      // [experts, out], or empty
  // Index into LoraLayout::layers of the first expert's layer. The layers of the other experts
  // follow. -1: no adapter changes the experts.
  int lora_layer = -1;
};

struct AttentionWeights {
  // [q_width + 2 * kv_width, hidden]: rows of q, then k, then v. No v if
  // AttentionSpec::values_are_keys; no k and v if the layer uses those of kv_layer.
  LinearWeights qkv;
  // [head_dim]; with QkNorm::kWholeWidth [q_width] and [kv_width]; or empty.
  std::vector<float> q_norm, k_norm;
  std::vector<float> v_norm;  // [head_dim] of ones if values are normalized, else empty
  // With QkNorm::kLayerBeforeRope, q_norm and k_norm are [head_dim], or have one row of that size
  // per head. The biases have the same shape, or are empty.
  std::vector<float> q_norm_bias, k_norm_bias;
  LinearWeights gate;              // only for AttentionSpec::gate, else empty
  std::vector<float> gate_bias;    // [num_heads], or empty
  std::vector<float> output_norm;  // [all ranks' output_width], or empty
  LinearWeights output;            // [hidden, q_width]
  std::vector<float> sinks;        // [num_heads], or empty
  KvScales kv_scales;              // scales for an FP8 cache
  // The next members are for latent attention; otherwise they are empty. With latent attention,
  // `qkv` is [first_width, hidden]: rows of q_a (or of q, if q_rank is 0), then of the latent
  // vector and the shared key. q_norm is [q_rank], k_norm is [kv_rank].
  LinearWeights q_b;       // [num_heads * (nope_dim + rope_dim), q_rank]
  ExpertWeights key_up;    // for each head [kv_rank, nope_dim]: W_UK, transposed
  ExpertWeights value_up;  // per head [value_dim, kv_rank]: W_UV
  // Only if the layer has its own indexer (IndexerSpec), else empty.
  LinearWeights index_q;                           // [heads * head_dim, q_rank]
  LinearWeights index_k;                           // [head_dim, hidden]
  LinearWeights index_weights;                     // [heads, hidden]
  std::vector<float> index_norm, index_norm_bias;  // [head_dim] each
  // For BlockIndexerSpec: index_q is [heads * head_dim, hidden], and there are index_k, index_norm
  // and the norm of the heads of q, [head_dim].
  std::vector<float> index_q_norm;
  // For CompressedSpec, else empty. k_norm and index_norm are then [qk_dim] and [index_dim], there
  // are no key_up, value_up, index_k and index_norm_bias, and `output` is [hidden, output_groups *
  // output_rank].
  ExpertWeights output_groups;  // per group [output_rank, heads of the group * qk_dim]
  std::vector<float> q_ones;    // [qk_dim] ones, the weights of the norm of q's heads
  // Weights that compute entries, or the indexer's keys. P = projections(); D = size of an entry.
  struct Compressor {
    LinearWeights rows;       // [2 * P * D, hidden]: c, then z
    std::vector<float> bias;  // [rate, P * D]
    std::vector<float> norm;  // [D]
  };
  Compressor entries, index_entries;
};

// The weights of a mixer (MixerSpec). For Mamba-2, q, k and v are C, B and x.
struct MixerWeights {
  // [InputRows(), hidden]. For a short convolution: rows of B, C, x. Otherwise rows of q, k, v, z
  // and, for Mamba-2, of the steps.
  LinearWeights in;
  // For the delta rule: rows of b, then a [2 * num_heads, hidden]. With decays_keys: rows of b and,
  // unless low_rank is set, of f_proj [num_heads * key_dim].
  LinearWeights steps;
  // Only for MixerSpec::low_rank, else empty. The down matrices for decays and z are [low_rank,
  // hidden], the up matrices [num_heads * key_dim or values_width, low_rank].
  LinearWeights decay_down, decay_up, gate_down, gate_up;
  std::vector<float> conv;       // [conv_width, conv_channels]
  std::vector<float> conv_bias;  // [conv_channels], or empty
  // [num_heads] each, or empty; with decays_keys, step_bias is [num_heads * key_dim].
  std::vector<float> a_log, step_bias, skip;
  std::vector<float> norm;  // [head_dim] or [values_width], or empty
  LinearWeights output;     // [hidden, values_width]
};

struct MlpWeights {
  LinearWeights gate_up;          // [2 * intermediate, hidden]: rows of gate, then up; or only up
  LinearWeights down;             // [hidden, intermediate]
  LinearWeights output_gate;      // [1, hidden], or empty
  std::vector<float> inner_norm;  // [all ranks' intermediate], or empty
  // For Activation::kXielu: alpha_p, alpha_n, beta and eps as stored; else empty.
  std::vector<float> activation;
};

struct MoeWeights {
  LinearWeights router;              // [experts, hidden]
  std::vector<float> choice_bias;    // [experts], or empty
  std::vector<float> token_experts;  // [vocabulary, top_k]: MoeSpec::token_experts, or empty
  ExpertWeights gate_up;             // per expert [2 * intermediate, hidden], or only up
  ExpertWeights down;                // per expert [hidden, intermediate]
  // Only for MoeSpec::latent, else empty. In gate_up and down, the width of `latent` replaces the
  // hidden size.
  LinearWeights latent_down, latent_up;
  // Only for MoeSpec::own_norms, else empty: [hidden] each; expert_factors [experts].
  std::vector<float> router_norm, mlp_after, experts_before, experts_after, expert_factors;
};

// The weights of one sum of streams (StreamsSpec).
struct StreamWeights {
  std::vector<float> matrix;  // [num_weights(), count * hidden]; [count, ...] before the final norm
  std::vector<float> base;    // [num_weights()], or [count]
  // [3]: scales of the weights of the sum, the result and the mix; or [1]
  std::vector<float> scale;
};

// The weights of a LayerEmbeddingSpec in one layer.
struct LayerEmbeddingWeights {
  LinearWeights gate;        // [width, hidden]
  LinearWeights projection;  // [hidden, width]
  std::vector<float> norm;   // [hidden]
};

// The norms around a sublayer.
struct NormWeights {
  std::vector<float> before, after;  // [hidden], or empty
  std::vector<float> before_bias;    // [hidden] for layer norms, or empty
};

struct LayerWeights {
  NormWeights attention_norms;
  AttentionWeights attention;
  MixerWeights mixer;
  NormWeights mlp_norms;
  MlpWeights mlp;
  MoeWeights moe;
  LayerEmbeddingWeights embedding;
  StreamWeights attention_streams, mlp_streams;  // only for StreamsSpec, else empty
  std::vector<float> residual_factor;            // [1], or empty
};

// The weights of a DrafterSpec.
struct DrafterWeights {
  LinearWeights projection;                    // [hidden, 2 * hidden], or [hidden, target_width()]
  std::vector<float> token_norm, hidden_norm;  // [hidden] each
};

struct DecoderWeights {
  kernels::PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  StreamWeights final_streams;         // only for StreamsSpec, else empty
  std::vector<float> final_norm;       // [hidden]
  std::vector<float> final_norm_bias;  // [hidden] for a layer norm, or empty
  // [hidden] ones, only for DecoderSpec::norms_embedding, else empty
  std::vector<float> embedding_norm;
  // [first + rows, hidden], only for DecoderSpec::positions, else empty.
  std::vector<float> positions;
  // Only for LayerEmbeddingSpec, else empty.
  kernels::PackedMatrix layer_embeddings;  // [vocabulary of the table, layers * width]
  LinearWeights layer_projection;          // [layers * width, hidden]
  std::vector<float> layer_norm;           // [width]
  LinearWeights head;                      // [vocab, hidden]; empty unless DecoderSpec::LoadsHead
  std::vector<float> scores;               // [num_scores, hidden]; only for HeadSpec::Kind::kScores
  // Like LinearWeights::lora_layer.
  int embedding_lora = -1, head_lora = -1;
  DrafterWeights drafter;  // weights of a drafting head; otherwise empty
};

// Rows of a matrix, or elements of a vector. A part of a matrix has the name of its module
// ("model.layers.0.mlp.up_proj"), from which the scheme derives the names of tensors. A part of a
// vector has the name of its tensor ("model.norm.weight").
struct ParameterPart {
  std::string name;
  int64_t rows = 0;                   // number of rows in the checkpoint
  std::optional<RowRange> held = {};  // the rows of this rank; nullopt: all rows
  float factor = 1;                   // multiplies the elements of a vector
  // For a matrix of an expert: name of the tensor that contains this part of all experts; "": none.
  std::string fused = {};

  RowRange held_rows() const { return held.value_or(RowRange{0, rows}); }
};

// The matrix of one expert within a tensor of all experts. The tensor is [experts, rows, cols], or
// [experts, cols, rows] if `transposed`. With `either`, the tensor's shape determines which; if the
// shape is ambiguous, `transposed` does.
struct FusedExpert {
  std::string module;  // name of the tensor: "model.layers.0.mlp.experts.gate_up_proj"
  int64_t expert = 0;
  int64_t num_experts = 0;
  bool transposed = false;
  bool either = false;
  // Whether the tensor is [experts * intermediate size, hidden size]. If `transposed`, the rows of
  // an expert in this tensor are the columns of its matrix.
  bool flat = false;
};

// Some rows of a module's matrix that are stored as a separate, unquantized matrix, decoded from
// any format. The separate matrix has one part, with the module's name and the rows in memory.
struct TakenRows {
  int64_t module_rows = 0, module_cols = 0;
  RowRange rows = {};
  bool transposed = false;  // whether the matrix in memory is [cols, rows]
};

// A matrix [number of this rank's rows, cols] in memory. It consists of the weights [rows, cols] of
// one or more modules, stacked by rows. If the checkpoint has the tensor that `fused` names, the
// matrix is read only from that tensor.
struct MatrixParameter {
  std::vector<ParameterPart> parts;
  int64_t cols = 0;
  kernels::PackedMatrix* target = nullptr;
  LinearInputs* inputs = nullptr;   // may be null
  LinearWeights* linear = nullptr;  // the linear layer, if an adapter may change it; else null
  std::optional<FusedExpert> fused = {};
  std::optional<TakenRows> taken = {};
  ExpertWeights* experts = nullptr;  // the experts to which fused->expert belongs, or null
  // If not empty, all parts are pieces of a tensor with this shape. Its first dimension is the
  // rows, and the other dimensions are the columns. If `is_transposed`, the tensor is [columns,
  // rows]. The tensor has the part's name; for a `linear` layer, ".weight" is appended.
  std::vector<int64_t> shape = {};
  bool is_transposed = false;
  // Whether devices store the matrix as BF16, because no product with rounded inputs reads it
  // (embedding, router).
  bool plain_on_device = false;

  int64_t rows() const;         // number of rows in memory
  int64_t stored_rows() const;  // number of rows of all parts in the checkpoint
};

// A vector of F32 in memory. It consists of this rank's elements of one or more tensors [rows],
// concatenated; consecutive parts with the same name are pieces of one tensor. Also used for a
// small matrix that no matrix kernel reads.
struct VectorParameter {
  enum class Kind { kNorm, kBias };
  Kind kind = Kind::kNorm;
  std::vector<ParameterPart> parts;
  std::vector<float>* target = nullptr;
  float offset = 0;   // added to every stored element
  float factor = 1;   // multiplies every stored element
  int64_t width = 0;  // if not 0, the tensors are [rows / width, width]
  // If not 0, the tensors are convolution weights [rows / taps, 1, taps], and the target is [taps,
  // rows / taps]. Rows of parts are counted in elements.
  int64_t taps = 0;
  // If not empty: names of tensors whose concatenation replaces the tensor that all parts name.
  std::vector<std::string> joined = {};
  // If not empty: the shape of the only part's tensor.
  std::vector<int64_t> shape = {};
  bool allows_infinite = false;  // whether infinite numbers are accepted
  int64_t num_indices = 0;   // if not 0, the tensors contain I64 or I32 numbers in [0, num_indices)
  bool is_optional = false;  // whether a missing tensor is replaced by zeros

  int64_t rows() const;
};

// The destinations of the scales of one layer's FP8 keys and values.
struct KvScaleParameter {
  std::string attention;  // name of the attention module: "model.layers.0.self_attn"
  KvScales* target = nullptr;
};

// All parameters of a decoder, each exactly once.
struct ParameterList {
  std::vector<MatrixParameter> matrices;
  std::vector<VectorParameter> vectors;
  std::vector<KvScaleParameter> kv_scales;
  // Name prefixes of tensors that a checkpoint may contain and that are not read.
  std::vector<std::string> unread;
  // Whether the checkpoint also contains another model. If so, unknown tensors are accepted.
  bool is_part = false;
};

// Lists the parameters of `spec` for the rank at `place`, with targets in `weights`. Creates the
// layers in `weights`. `drafter`: for a drafting head, else null.
ParameterList ListParameters(const DecoderSpec& spec, DecoderWeights& weights,
                             const RankPlace& place = {}, const DrafterSpec* drafter = nullptr);

}  // namespace sluice
