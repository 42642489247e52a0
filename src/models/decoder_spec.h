// The description of a decoder as data. It contains everything in which model families differ.
// program/build_decoder.cc turns it into operators.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/attention_span.h"
#include "kernels/clamped_swiglu.h"
#include "kernels/experts.h"
#include "kernels/rope.h"
#include "tensor/element_type.h"

namespace sluice {

// An MLP with a gate computes down(activation(gate(x)) * up(x)); one without a gate computes
// down(activation(up(x))).
enum class Activation {
  kSilu,
  kGeluTanh,  // GELU, approximated with tanh
  kGelu,      // GELU, computed with erf
  kRelu,
  kRelu2,  // the square of kRelu
  kXielu,  // xIELU, whose parameters belong to the MLP: kernels/activation_rule.h
  // Clamped SwiGLU, for experts whose rows of gate and up alternate: kernels/clamped_swiglu.h.
  kClampedSwiglu,
};

// The norm of q and k: an RMS norm unless stated otherwise.
enum class QkNorm {
  kNone,
  kBeforeRope,           // a norm of each head, with separate weights for q and k
  kAfterRope,            // like kBeforeRope, but after RoPE (Hunyuan)
  kAfterRopeUnweighted,  // a norm of each head after RoPE, without weights: Llama 4
  kWholeWidth,  // one norm over all heads of q and one over all heads of k, before RoPE: OLMo 2
  kLayerBeforeRope,  // a layer norm of each head before RoPE: Persimmon
};

// q is multiplied by log(floor((position + first) / floor_scale) + 1) * attn_scale + 1. Used by
// Llama 4 in layers without RoPE, and by Ministral 3 in all layers. If there is a `power` (Beam),
// the factor is ((position + first) / floor_scale + 1) ^ power.
struct TemperatureTuning {
  double floor_scale = 0;
  double attn_scale = 0;
  int first = 1;  // number that the formula uses for the first position
  double power = 0;
};

// DSA's indexer, which chooses the positions that a row attends to. The score of a position is the
// weighted sum of max(0, q . k) over the indexer's heads; the indexer caches its own keys.
struct IndexerSpec {
  int num_heads = 0;
  int head_dim = 0;  // size of a head, whose first LatentSpec::rope_dim elements are rotated
  // Number of chosen positions; a row with at most this many positions attends to all of them.
  int top_k = 0;
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  // Whether the layer has no indexer and reuses the choice of the previous layer.
  bool is_shared = false;
  float norm_eps = 1e-6F;  // epsilon of the layer norm of the keys
};

// An indexer that chooses blocks of positions (MiniMax M3): positions [i * block, (i + 1) * block)
// are block i. Each head makes a choice for one KV head: the blocks with the largest q . k of any
// position that the row sees. The indexer caches its own keys, one for all heads; heads of q and
// the key have RMS norms, and RoPE like those of attention.
struct BlockIndexerSpec {
  int num_heads = 0;  // number of KV heads
  int head_dim = 0;   // even
  int block = 0;      // a multiple of kernels::kBlockUnit
  int top_k = 0;      // number of blocks; a row that sees no more blocks attends to all of them
  int local = 1;      // the row's own block and those before it that are always chosen, at least 1
  std::string prefix = {};  // of the names of its modules, after the attention's name
};

// Attention to a window and to entries that stand for several earlier tokens each (DeepSeek V4).
// The vector of a token is the key and the value of all heads, as is an entry. An entry is made of
// the tokens [i * rate, (i + 1) * rate): with projections c and z of each, and B a bias for each
// place in the group, the RMS norm of sum softmax(z + B) c, by element over the tokens; its RoPE
// has position i * rate. A row sees the entries whose tokens are not after its own. If groups
// overlap, each token has two projections, and an entry also sums the first of the tokens of the
// group before and the second of its own.
//
// The softmax is summed token by token in a state of the sequence (kernels/compress.h), so an
// entry's bits do not depend on where chunks of a prompt begin. Entries are stored in the blocks of
// their last tokens (KvLayout::entries).
struct CompressedSpec {
  int window = 0;         // a row also attends to the last `window` positions, including its own
  int rate = 0;           // tokens per entry; 0: there are no entries
  bool overlaps = false;  // whether groups overlap
  // The smallest rate of any layer, which is the rate of layers with an indexer, and the size of an
  // indexer's keys; 0: none. Needed in every layer, because all layers have the same cache layout.
  int least_rate = 0;
  int index_dim = 0;
  // The output projection has two steps. The heads form `output_groups` groups of consecutive
  // heads. The values of each group are projected to `output_rank` numbers, and the numbers of all
  // groups to hidden rows.
  int output_groups = 1;
  int output_rank = 0;

  int projections() const { return overlaps ? 2 : 1; }
  // Number of F32 elements per sequence of a compressor's state, for vectors of `dim` elements.
  int64_t StateNumbers(int64_t dim) const { return int64_t{projections()} * 3 * dim; }
};

// Latent attention (MLA). One vector per token is cached for all heads. It consists of a latent
// vector, from which each head could compute its keys and values with its own matrices, and a key
// with RoPE that all heads share. In both prefill and decoding, the matrices are applied to the
// queries and to the results instead: q.k = (W_UK^T q) . latent + q_rope . k_rope, and sum(w v) =
// W_UV sum(w latent). So attention has a single KV head, whose first `kv_rank` elements are its
// values, and results have the same bits however a prompt is divided into chunks. In AttentionSpec,
// num_kv_heads is 1 and head_dim is kv_rank + rope_dim.
struct LatentSpec {
  int kv_rank = 0;
  int nope_dim = 0;  // size of the part of a q head that is not rotated
  // Size of the rotated part of a q head, which follows the other part; also the size of the shared
  // key.
  int rope_dim = 0;
  int value_dim = 0;  // size of a v head
  // Size of the compressed vector from which q is computed. It is normalized like the latent
  // vector. 0: q is computed from the hidden rows.
  int q_rank = 0;
  float norm_eps = 1e-6F;
  std::optional<IndexerSpec> indexer = {};
  // If set, keys are vectors of qk_dim elements, normalized as a whole; the last `rope_dim`
  // elements are rotated. Values are keys: kv_rank is nope_dim, and value_dim is qk_dim. Heads of q
  // have an RMS norm without weights, and the rotation of values is undone in the result. If there
  // is an indexer, it chooses entries instead of positions; its keys are computed like entries.
  std::optional<CompressedSpec> compressed = {};

  int qk_dim() const { return nope_dim + rope_dim; }
  // Size of the part of a key that is normalized.
  int normed_dim() const { return compressed ? qk_dim() : kv_rank; }
  bool makes_entries() const { return compressed && compressed->rate > 0; }
  // Number of F32 elements per sequence in the compressors' states.
  int64_t StateNumbers() const {
    if (!makes_entries()) return 0;
    return compressed->StateNumbers(qk_dim()) +
           (indexer ? compressed->StateNumbers(indexer->head_dim) : 0);
  }
};

// A linear layer on the sublayer's input. Its sigmoid (or softplus) multiplies the output of
// attention before the output projection.
enum class AttentionGate {
  kNone,
  kEachNumber,  // one gate per element of the output: [q_width, hidden]
  kEachHead,    // one gate per head: [num_heads, hidden]
  kInQueries,  // like kEachNumber, but in q_proj: a head's gate rows follow its q rows (Qwen3-Next)
};

struct AttentionSpec {
  std::string module = "self_attn";  // name, appended to the layer's name
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // If one module computes q, k and v: the module's name, which is appended to the attention's
  // name. "" if q, k and v have separate modules.
  std::string qkv_projection = {};
  // Whether the rows of that module are grouped by KV head: first q of the heads that share the KV
  // head, then k, then v.
  bool qkv_by_kv_head = false;
  // Number of parts into which the rows of that module are divided (CodeGen). Each part has rows of
  // q, of v and of k. 0: not divided.
  int qkv_parts = 0;
  std::string output_projection = "o_proj";
  bool qkv_bias = false;
  bool output_bias = false;
  // Q, k and v are clamped to [-qkv_limit, qkv_limit] before their norms; 0: not clamped.
  float qkv_limit = 0;
  QkNorm qk_norm = QkNorm::kNone;
  std::string q_norm = "q_norm", k_norm = "k_norm";  // names of norms with weights
  // Only for kLayerBeforeRope: whether norms have biases, and whether each head has its own
  // weights.
  bool qk_norm_biases = false;
  bool qk_norm_of_heads = false;
  AttentionGate gate = AttentionGate::kNone;
  std::string gate_projection = "gate_proj";
  // Whether a gate with a separate module uses softplus instead of sigmoid.
  bool gate_is_softplus = false;
  // Only for kEachNumber: name, appended to the attention's name, of a tensor [num_heads] with a
  // bias for all gates of a head; "": none.
  std::string gate_bias = {};
  // Name of an RMS norm of the output of all heads, before the output projection; "": none.
  std::string output_norm = {};
  std::optional<float> scale;  // multiplies q . k; nullopt: 1 / sqrt(head_dim)
  bool rope = true;            // false: no position embedding (NoPE)
  int rotary_dim = 0;  // size of the first part of a head, which RoPE rotates; 0: the whole head
  int rope_table = 0;  // index into DecoderSpec::rope_tables
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  AttentionSpan span;
  std::optional<TemperatureTuning> temperature_tuning;
  float soft_cap = 0;  // cap c: a score s becomes c * tanh(s / c) before the softmax; 0: no cap
  // Whether tokens of an image also attend to later tokens of the same image (kernels::SeenSpan).
  bool sees_images = false;
  // Whether each head has a "sink": a learned score in addition to those of the positions, with a
  // value of zero.
  bool sinks = false;
  // Name of the tensor [num_heads], appended to the attention's name.
  std::string sinks_tensor = "sinks";
  // Whether v equals k before norm and RoPE, so that there is no v_proj.
  bool values_are_keys = false;
  bool norms_values = false;  // whether an RMS norm without weights is applied to each head of v
  // Size of a v head, if it is smaller than a k head; the cache pads it with zeros. 0: the same
  // size as a k head.
  int narrow_value_dim = 0;
  float output_factor = 1;  // multiplies the output of o_proj
  // Index of an earlier layer with the same heads and span, whose keys and values this layer uses;
  // -1: the layer has its own.
  int kv_layer = -1;
  std::optional<LatentSpec> latent = {};
  std::optional<BlockIndexerSpec> block_indexer = {};  // only without `latent`

  // Whether the layer has attention, and with it keys and values.
  bool exists() const { return num_heads > 0; }
  bool has_own_kv() const { return exists() && kv_layer < 0; }

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  int64_t given_v_width() const { return int64_t{num_kv_heads} * given_value_dim(); }
  // Returns whether the gate has a separate module.
  bool has_gate_module() const {
    return gate == AttentionGate::kEachNumber || gate == AttentionGate::kEachHead;
  }
  int64_t gate_width() const { return gate == AttentionGate::kInQueries ? q_width() : 0; }
  // Width of a row [gate, q, k, v].
  int64_t row_width() const { return gate_width() + qkv_width(); }
  // Size of a head's value in the cache.
  int value_dim() const { return latent ? latent->normed_dim() : head_dim; }
  // Size of a head of v in the output of v_proj.
  int given_value_dim() const { return narrow_value_dim > 0 ? narrow_value_dim : head_dim; }
  // These functions return the width of the output projection's input: for one head, and for all
  // heads.
  int output_dim() const { return latent ? latent->value_dim : given_value_dim(); }
  int64_t output_width() const {
    if (latent && latent->compressed)
      return int64_t{latent->compressed->output_groups} * latent->compressed->output_rank;
    return int64_t{num_heads} * output_dim();
  }
  // Width of the first product's output: [gate, q, k, v]. With latent attention it is [q, latent
  // vector, shared key]; instead of q, it may have the vector from which q is computed.
  int64_t latent_q_width() const {
    return latent->q_rank > 0 ? latent->q_rank : int64_t{num_heads} * latent->qk_dim();
  }
  int64_t first_width() const { return latent ? latent_q_width() + head_dim : row_width(); }
  int rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  float softmax_scale() const;
};

struct MlpSpec {
  std::string module;  // name, appended to the layer's name: "mlp", "feed_forward.shared_expert"
  // If one module computes gate and up: the module's name, which is appended to the MLP's name. ""
  // if gate and up have separate modules.
  std::string gate_up_projection = {};
  std::string gate_projection = "gate_proj";  // "": there is no gate
  std::string up_projection = "up_proj";
  std::string down_projection = "down_proj";
  int64_t intermediate_size = 0;  // 0: there is no MLP
  bool has_bias = false;          // whether gate, up and down have biases
  Activation activation = Activation::kSilu;
  float gate_factor = 1, output_factor = 1;  // multiply the outputs of gate and down
  float limit = 0;                           // ActivationRule::limit
  bool limits_input = false;                 // ActivationRule::limits_input
  float gain = 1, up_offset = 0;             // ActivationRule::gain and factor_offset
  std::string inner_norm = {};  // an RMS norm of the input of down_projection; "": none
  // After the layer's name: the module with one output, whose sigmoid multiplies the MLP's result;
  // "": none. Only for an MLP in parallel with experts.
  std::string output_gate = {};

  bool is_gated() const { return !gate_up_projection.empty() || !gate_projection.empty(); }
  // Returns the number of rows of gate and up, or only of up.
  int64_t inner_width() const { return is_gated() ? 2 * intermediate_size : intermediate_size; }
};

struct MoeSpec {
  // Name, appended to the layer's name: "mlp.gate", "feed_forward.router".
  std::string router_module;
  std::string experts_module;  // name, appended to the layer's name: "mlp.experts"
  // Names of the modules of each expert, appended to the expert's name. If gate_projection is
  // empty, experts have no gate.
  std::string gate_projection = "gate_proj";
  std::string up_projection = "up_proj";
  std::string down_projection = "down_proj";
  // Names, appended to `experts_module`, of the tensors that contain all experts: [experts, in,
  // out] if fused_transposed, else [experts, out, in]. With fused_either, the tensor's shape
  // decides which of the two applies; if the shape is ambiguous, fused_transposed decides.
  std::string fused_gate_up = "gate_up_proj";
  std::string fused_down = "down_proj";
  bool fused_transposed = false;
  bool fused_either = false;
  // If gate and up of all experts are two tensors: their names, used instead of fused_gate_up.
  std::string fused_gate = {}, fused_up = {};
  // Whether these tensors and the tensor of down have the shape [experts * intermediate_size,
  // hidden_size] (DBRX).
  bool fused_flat = false;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;  // intermediate size of each expert
  Activation activation = Activation::kSilu;
  kernels::SwigluClamp clamp = {};  // for kClampedSwiglu
  float limit = 0;                  // ActivationRule::limit
  bool limits_input = false;        // ActivationRule::limits_input
  float gain = 1, up_offset = 0;    // ActivationRule::gain and factor_offset
  bool router_bias = false;
  // Names of tensors with the biases of all experts: "gate_up_proj_bias" [experts, out].
  bool has_bias = false;
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  float jitter = 0;    // see RouterRule::jitter
  float soft_cap = 0;  // see RouterRule::soft_cap
  // Name, appended to the layer's name, of a tensor [experts] that is added to the scores only for
  // the choice; "": none.
  std::string choice_bias = {};
  bool may_lack_choice_bias = false;  // whether a missing tensor means that there is no bias
  // Name, appended to the layer's name, of a tensor [vocabulary, top_k] with the experts of each
  // token; the scores then determine only the experts' weights. "": none.
  std::string token_experts = {};
  bool chooses_by_logits = false;  // see RouterRule::chooses_by_logits
  // Experts are chosen from the best `kept_groups` of `num_groups` groups of consecutive experts.
  int num_groups = 1;
  int kept_groups = 1;
  int group_best = 2;      // a group's score is the sum of its best 1 or 2 scores
  bool normalize = false;  // whether the weights of a token's experts add up to 1
  float weight_scale = 1;  // multiplies the weights, after normalization
  // Whether the weight multiplies the expert's input instead of its output.
  bool scale_inputs = false;
  // For Gemma 4: router, MLP and experts each read a separate norm of the residual. The results of
  // the MLP and of the experts have separate norms before they are added. The weight of the
  // router's norm is "<router_module>.scale" / sqrt(hidden_size), the router's matrix is
  // "<router_module>.proj", and "<router_module>.per_expert_scale" [experts] multiplies the
  // weights. LayerSpec::mlp_norms apply before the MLP and after the sum.
  struct OwnNorms {
    std::string mlp_after;  // name, appended to the layer's name; also for the next two members
    std::string experts_before, experts_after;
  };
  std::optional<OwnNorms> own_norms = {};
  // For Nemotron 3 Super: experts read a projection of the rows to `width` elements, and their
  // result is projected back. The router and the MLP read the rows themselves.
  struct Latent {
    int64_t width = 0;
    // Names of modules, appended to the layer's name: [width, hidden] and [hidden, width].
    std::string down, up;
    bool has_bias = false;
  };
  std::optional<Latent> latent = {};

  bool is_gated() const { return !gate_projection.empty(); }
  int64_t inner_width() const { return is_gated() ? 2 * intermediate_size : intermediate_size; }
  // Returns the width of an expert's input and output.
  int64_t outer_width(int64_t hidden_size) const { return latent ? latent->width : hidden_size; }
};

// Gemma 4's per-layer token embeddings, used in a sublayer after the MLP: delta =
// norm(project(gelu(gate(residual)) * own(token, layer))). own() is the sum of two terms:
// "embed_tokens_per_layer", and a norm of a projection of the token's embedding. Source:
// transformers' Gemma4TextModel.
struct LayerEmbeddingSpec {
  int64_t width = 0;  // number of elements per token and layer; 0: there are no such embeddings
  int64_t vocab_size = 0;
};

// A mixer gives tokens access to earlier tokens through a state of fixed size per sequence, whereas
// attention stores the keys and values of each token. The state consists of a matrix per head and
// the last inputs of a convolution, in F32. The state after a token is computed only from the
// previous state and the token, so results have the same bits wherever chunks of a prompt begin.
// (Computing tokens in blocks, as some libraries do, would make sums depend on where a block
// begins.)
//
// Each channel's convolution reads `conv_width` inputs; the last one is the token's own. The kinds
// of mixers:
//   kShortConvolution  [B, C, x] = in(input), each [num_heads]; C * convolution(B * x): LFM2
//   kDeltaRule         [q, k, v, z] = in(input); q, k and v = silu(convolution); q and k get length
//                      1. State S [key_dim, head_dim] of a head, decay g, rate b of the token:
//                      S = g S; S += k (b (v - k S)); q S / sqrt(key_dim): Gated DeltaNet
//   kStateSpace        [z, x, B, C, step] = in(input); x, B and C = silu(convolution); S = g S +
//                      B (step x); C S + D x, with g = exp(-exp(A_log) step): Mamba-2
// The results are normed and gated by z, then multiplied by the matrix `out`.
struct MixerSpec {
  enum class Kind { kShortConvolution, kDeltaRule, kStateSpace };
  // How the projections are stored in the checkpoint: names of their modules, appended to the
  // mixer's name, and the rows of each module.
  enum class Projections {
    kOne,        // in_proj computes all
    kByKeyHead,  // in_proj_qkvz, in_proj_ba: rows grouped by key head
    kByKind,     // modules in_proj_qkv, in_proj_z, in_proj_b, in_proj_a
    kOneByKind,  // in_proj computes all: q of all heads, then k, v, z, b and a
    kEach,       // q_proj, k_proj, v_proj, g_proj, b_proj, a_proj
  };
  enum class Norm {
    kNone,
    kOfHeads,   // a norm of each head, with weights [head_dim], before the gate
    kOfGroups,  // one norm over all value heads that share a key head, with weights [values_width]
  };
  Kind kind = Kind::kShortConvolution;
  std::string module = {};  // name, appended to the layer's name: "conv", "linear_attn", "mamba"
  Projections projections = Projections::kOne;
  int conv_width = 0;
  bool conv_bias = false;
  // Whether the first projections have biases, and whether the last one has.
  bool has_bias = false, output_bias = false;
  // num_heads: number of value heads, each with a state [key_dim, head_dim]. num_key_heads: number
  // of q and k heads (Mamba-2: of C and B), each shared by num_heads / num_key_heads consecutive
  // value heads. A short convolution has num_heads channels of one number, and no keys.
  int num_heads = 0;
  int num_key_heads = 0;
  int head_dim = 0;
  int key_dim = 0;
  Norm norm = Norm::kNone;
  bool norms_before_gate = true;
  float norm_eps = 0;
  float rate_scale = 1;  // factor of the delta rule's rates
  // Delta rule: whether each element of a key has its own decay, instead of one decay per head.
  // With x = f_proj(input) + dt_bias [num_heads * key_dim], the decay is exp(decay_bound *
  // sigmoid(e^A_log * x)) if there is a `decay_bound`, which is negative, else exp(-e^A_log *
  // softplus(x)).
  bool decays_keys = false;
  float decay_bound = 0;
  // Rank of projections that are products of two matrices: f_a_proj and f_b_proj for f_proj,
  // g_a_proj and g_b_proj for z. 0: each projection has a single matrix.
  int low_rank = 0;
  bool has_sigmoid_gate = false;  // whether the gate is sigmoid(z) instead of silu(z)
  // Name of the last projection, appended to the mixer's name; "": out_proj, or o_proj with kEach.
  std::string output_projection = {};
  // Name of the norm, appended to the mixer's name; "": norm, or o_norm with kEach.
  std::string norm_module = {};
  float least_step = 0, most_step = 0;  // limits of the step in Mamba-2; most_step 0: no limit
  // Factors of the parts of in_proj's output: z, x, B, C and step.
  std::array<float, 5> input_factors = {1, 1, 1, 1, 1};
  float output_factor = 1;  // multiplies the output of `out`

  int64_t keys_width() const { return int64_t{num_key_heads} * key_dim; }
  int64_t values_width() const { return int64_t{num_heads} * head_dim; }
  int64_t conv_channels() const { return 2 * keys_width() + values_width(); }
  int64_t decays_width() const { return int64_t{num_heads} * key_dim; }
  // Returns the number of outputs of the first projection. A short convolution has three per
  // channel. Other mixers have q, k, v and z (without z if low_rank); Mamba-2 also has the steps.
  int64_t InputRows() const {
    if (kind == Kind::kShortConvolution) return 3 * values_width();
    if (low_rank > 0) return conv_channels();
    return conv_channels() + values_width() + (kind == Kind::kStateSpace ? num_heads : 0);
  }
  // F32 elements per sequence for the convolution's last inputs.
  int64_t tail_numbers() const { return (conv_width - 1) * conv_channels(); }
  int64_t matrix_numbers() const { return values_width() * key_dim; }
};

// Hyper-connections (DeepSeek V4): the residual consists of `count` streams of hidden_size each. A
// sublayer reads a weighted sum of the streams. Its result, times a weight for each stream, is
// added to a mix of the streams. All weights are computed from the streams
// (kernels/residual_streams.h).
struct StreamsSpec {
  int count = 1;
  int iterations = 1;  // number of normalizations of the mix's rows and columns
  float eps = 0;
  // Names of the weights of a layer's sublayers, appended to the layer's name, and of the weights
  // of the last sum, before the final norm. "_fn", "_base" and "_scale" are appended to each.
  std::string attention = "hc_attn", mlp = "hc_ffn";
  std::string head = "model.hc_head.hc";

  // Number of weights per row: for the sum, for the result, and for the mix.
  int64_t num_weights() const { return int64_t{count} * (2 + count); }
};

// Settings of norms over whole rows.
struct NormSpec {
  enum class Kind { kRms, kLayer };
  Kind kind = Kind::kRms;
  bool has_weights = true;
  bool has_biases = false;  // whether layer norms have biases
};

// Names of the norms around a sublayer, appended to the layer's name; "": no norm.
struct NormModules {
  std::string before;  // norm of the sublayer's input
  std::string after;   // norm of the sublayer's result, before the result is added to the residual
  float eps_factor = 1;  // factor of DecoderSpec::norm_eps for `before`
};

// A layer's first half is attention, a mixer, or both; if both, they read the same norm and their
// results are added. The second half is an MLP or experts. Either half may be absent.
struct LayerSpec {
  NormModules attention_norms = {.before = "input_layernorm", .after = ""};
  AttentionSpec attention;
  std::optional<MixerSpec> mixer = {};
  NormModules mlp_norms = {.before = "post_attention_layernorm", .after = ""};
  // Whether the MLP reads the same residual as attention, before either result is added (Cohere).
  // If the names of their norms are equal, they share one norm.
  bool is_parallel = false;
  // Name, appended to the layer's name, of the tensor [1] that multiplies the residual after the
  // layer; "": none.
  std::string residual_factor = {};
  MlpSpec mlp;  // the only MLP, or the MLP in parallel with the experts, which all tokens use
  std::optional<MoeSpec> moe;  // nullopt: the layer has no experts

  bool mixes() const { return attention.exists() || mixer.has_value(); }
  bool has_mlp() const { return mlp.intermediate_size > 0 || moe.has_value(); }
};

// The head of the model. After the final norm, it computes logits or hidden states for the rows
// whose results the step requests.
struct HeadSpec {
  enum class Kind {
    kVocabulary,  // logits [vocab_size]
    kNone,        // hidden states: the rows themselves [hidden_size]
    kScores,      // scores [num_scores] of a linear layer with F32 weights, summed in F64
  };
  Kind kind = Kind::kVocabulary;
  int64_t num_scores = 0;
  // kScores: the layer's weights are the rows of these tokens in the language model's head. Empty:
  // the weights are those of the checkpoint's layer "score".
  std::vector<int32_t> tokens = {};
  // With two `tokens`: one score, which is the second row's result minus the first row's.
  bool is_difference = false;
};

// A decoder: embedding, layers, final norm, head. The fields after `layers` have no effect if they
// have their default values.
struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  bool tied_head = false;  // whether the head uses the embedding table as its matrix
  HeadSpec head;
  bool head_bias = false;  // whether the language model's head has a bias
  NormSpec norm;
  float norm_eps = 0;
  // Name of the final norm; "": none, as in some drafting heads.
  std::string final_norm = "model.norm";
  // Epsilon of the norms after sublayers; nullopt: norm_eps.
  std::optional<float> after_norm_eps = {};
  float final_norm_eps_factor = 1;
  // Whether the embedding's rows are normalized by an RMS norm without weights.
  bool norms_embedding = false;
  // Learned position embeddings, which are added to the token embeddings.
  struct Positions {
    std::string module = {};  // name of the table [first + positions, hidden]; "": there is none
    int64_t first = 0;        // row of the table for position 0
    int64_t rows = 0;
  };
  Positions positions = {};
  // Whether the tensors of linear layers, except the head, are [in, out]: GPT-2.
  bool has_transposed_tensors = false;
  // Name prefixes, which begin with "model.", of modules in the checkpoint that are ignored.
  std::vector<std::string> unread_modules = {};
  // Tables of angular frequencies, each [rotated / 2]; a layer refers to its table by index.
  std::vector<std::vector<float>> rope_tables;
  // Replaces the first table if a context may be longer than `short_context`. Empty: the first
  // table is used for all contexts. See FitRope.
  std::vector<float> long_rope_table;
  int64_t short_context = 0;
  // Multiplies the cosines and sines of the first table. If whole heads are rotated,
  // AttentionSpec::scale may contain a factor of q . k instead.
  float rope_amplitude = 1;
  // M-RoPE, for the first table. For each frequency, the axis (time, row or column) whose position
  // is multiplied by the frequency. Empty: all frequencies use the token's position.
  std::vector<int8_t> rope_axes;
  std::vector<LayerSpec> layers;
  // Number of additional layers in the checkpoint that propose draft tokens. The decoder does not
  // compute them.
  int64_t num_draft_layers = 0;

  // Added to every stored norm weight. It is 1 if a stored weight w stands for 1 + w.
  float norm_weight_offset = 0;
  // Like norm_weight_offset, for the final norm; nullopt: the same value.
  std::optional<float> final_norm_offset = {};
  float embedding_scale = 1;  // multiplies the embedding's rows
  // Token ids that stand for parts of images; -1: none. Outside of images these tokens have the
  // embedding of token 0.
  std::array<int32_t, 2> placeholders = {-1, -1};
  // Rows of images replace the embeddings of their tokens. After each of the first `image_levels`
  // layers, further rows are added (TowerSpec::levels). Operators that read token ids read
  // `image_token` for these tokens; -1: they read the id in the prompt.
  int64_t image_levels = 0;
  int32_t image_token = -1;
  // Returns the number of elements in a row of an image (ImageTower::row_width).
  int64_t ImageRowWidth() const { return hidden_size * (1 + image_levels); }
  float residual_scale = 1;  // multiplies a sublayer's result before it is added to the residual
  std::optional<StreamsSpec> streams = {};
  LayerEmbeddingSpec layer_embeddings;
  float logit_scale = 1;     // multiplies the logits, before the soft cap
  float logit_soft_cap = 0;  // cap c: a logit x becomes c * tanh(x / c); 0: no cap

  // Chooses the first RoPE table for contexts of up to `max_context` tokens. The choice is made
  // once, so that keys in the cache stay valid as a sequence grows.
  void FitRope(int64_t max_context);

  // Returns the number of elements per row of results.
  int64_t ResultSize() const {
    return head.kind == HeadSpec::Kind::kVocabulary ? vocab_size
           : head.kind == HeadSpec::Kind::kNone     ? hidden_size
                                                    : head.num_scores;
  }
  // Returns whether to load the weights of a language model's head that is not tied.
  bool LoadsHead() const { return head.kind == HeadSpec::Kind::kVocabulary && !tied_head; }

  int64_t NumMoeLayers() const;
  // Returns the first layer with experts; null if there is none.
  const LayerSpec* FirstMoeLayer() const;

  bool KeepsStates() const;  // whether sequences keep states in addition to blocks
  // Whether all layers with attention have equal numbers and widths of heads, and their own keys
  // and values.
  bool HasUniformHeads() const;
  int LargestHeadDim() const;
  // Returns the attention of the layer with the widest keys.
  const AttentionSpec& WidestKeys() const;
  int64_t NumKvLayers() const;  // Returns the number of layers that have their own keys and values.

  // Whether inputs of BF16 products are kept as the sum of two BF16 numbers. In models with
  // experts, rounding an input to a single BF16 number can change which of two nearly equal experts
  // is chosen, and with it the whole result of a row.
  bool SplitsInputs(ElementType compute_type) const;
};

}  // namespace sluice
