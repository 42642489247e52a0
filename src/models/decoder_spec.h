// The description of a decoder as data, which is all that differs between model families.
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
  kGeluTanh,  // GELU by tanh
  kGelu,      // GELU by erf
  kRelu,
  kRelu2,  // the square of it
  kXielu,  // with numbers of the MLP's: kernels/activation_rule.h
  // Experts whose rows of gate and up alternate: kernels/clamped_swiglu.h.
  kClampedSwiglu,
};

// The norm of q and k, an RMS norm unless it is said otherwise.
enum class QkNorm {
  kNone,
  kBeforeRope,           // of each head, with weights of its own for q and for k
  kAfterRope,            // the same after rope: Hunyuan
  kAfterRopeUnweighted,  // of each head: Llama 4
  kWholeWidth,           // of all heads of q, and of all of k, together, before rope: OLMo 2
  kLayerBeforeRope,      // a layer norm of each head, before rope: Persimmon
};

// q is multiplied by log(floor((position + first) / floor_scale) + 1) * attn_scale + 1: Llama 4 in
// layers without rope, Ministral 3 in all. If there is a `power`, by ((position + first) /
// floor_scale + 1) ^ power: Beam.
struct TemperatureTuning {
  double floor_scale = 0;
  double attn_scale = 0;
  int first = 1;  // the number of the first position
  double power = 0;
};

// What chooses the positions that a row attends to (DSA): each head of queries scores the keys that
// the indexer keeps of its own, scores below zero count as zero, and their weighted sums choose.
struct IndexerSpec {
  int num_heads = 0;
  int head_dim = 0;  // of which the first LatentSpec::rope_dim are rotated
  int top_k = 0;     // positions; a row that sees no more attends to all
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  bool is_shared = false;  // the layer has none, and takes the choice of the layer before
  float norm_eps = 1e-6F;  // of the keys' layer norm
};

// Latent attention (MLA). What is kept of a token is one vector for all heads: a latent one, of
// which each head makes its keys and values by matrices of its own, and a key with rope that all
// heads share. The matrices are applied to the queries and to the results instead, in prefill as in
// decoding: q.k = (W_UK^T q) . latent + q_rope . k_rope, and sum(w v) = W_UV sum(w latent), so that
// attention has one head of keys, whose first `kv_rank` numbers are its values, and the bits do not
// depend on how a prompt is cut. AttentionSpec: num_kv_heads is 1 and head_dim kv_rank + rope_dim.
struct LatentSpec {
  int kv_rank = 0;
  int nope_dim = 0;   // of a head of q, without rope
  int rope_dim = 0;   // of a head of q, after them, and of the shared key
  int value_dim = 0;  // of a head
  // q is made of a vector of this rank that is normed, as the latent one is; 0: of the hidden rows.
  int q_rank = 0;
  float norm_eps = 1e-6F;
  std::optional<IndexerSpec> indexer = {};

  int qk_dim() const { return nope_dim + rope_dim; }
};

// A linear layer of the sub-layer's input, whose sigmoid (or softplus) multiplies what attention
// makes of the values, before the output projection.
enum class AttentionGate {
  kNone,
  kEachNumber,  // [q_width, hidden]
  kEachHead,    // [num_heads, hidden]
  kInQueries,   // as kEachNumber; a head's rows follow those of its q in q_proj: Qwen3-Next
};

struct AttentionSpec {
  std::string module = "self_attn";  // after the layer's name
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // Where one module holds q, k and v: its name after the attention's; "" where each has its own.
  std::string qkv_projection = {};
  // Its rows are those of each head of k: of the heads of q that share it, of k, of v.
  bool qkv_by_kv_head = false;
  // Its rows are those of so many parts, each of which has rows of q, of v, of k: CodeGen. 0: they
  // are not in parts.
  int qkv_parts = 0;
  std::string output_projection = "o_proj";
  bool qkv_bias = false;
  bool output_bias = false;
  float qkv_limit = 0;  // q, k and v are kept within [-limit, limit], before their norms; 0: no
  QkNorm qk_norm = QkNorm::kNone;
  std::string q_norm = "q_norm", k_norm = "k_norm";  // of those with weights
  // kLayerBeforeRope: whether there are biases, and whether each head has weights of its own.
  bool qk_norm_biases = false;
  bool qk_norm_of_heads = false;
  AttentionGate gate = AttentionGate::kNone;
  std::string gate_projection = "gate_proj";
  bool gate_is_softplus = false;  // of modules
  // kEachNumber: after the attention's name, the tensor [num_heads] that is added to the gates of
  // each head; "" where there is none.
  std::string gate_bias = {};
  // An RMS norm of what all heads made of the values, before the output projection; "": none.
  std::string output_norm = {};
  std::optional<float> scale;  // of q . k; nullopt: 1 / sqrt(head_dim)
  bool rope = true;            // false: no position embedding (NoPE)
  int rotary_dim = 0;          // the first elements of a head, which rope rotates; 0: all
  int rope_table = 0;          // index into DecoderSpec::rope_tables
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  AttentionSpan span;
  std::optional<TemperatureTuning> temperature_tuning;
  float soft_cap = 0;  // c: a score s becomes c * tanh(s / c) before the softmax; 0: none
  // Tokens of an image see all of it, those after their own, too (kernels::SeenSpan).
  bool sees_images = false;
  // Each head has a learnt score ("sinks") beside those of the positions, with a value of zero.
  bool sinks = false;
  std::string sinks_tensor = "sinks";  // [num_heads], after the attention's name
  bool values_are_keys = false;        // v is k as it is before norm and rope: there is no v_proj
  bool norms_values = false;           // of each head of v, without weights
  // The numbers of a head of v, if it has fewer than one of k; the cache holds zeros after them. 0:
  // as many as k.
  int narrow_value_dim = 0;
  float output_factor = 1;  // of what o_proj gives
  // An earlier layer of the same heads and span, whose keys and values this one attends to: it has
  // none of its own; -1: its own.
  int kv_layer = -1;
  std::optional<LatentSpec> latent = {};

  // num_heads of 0: the layer has no attention, and no keys and values.
  bool exists() const { return num_heads > 0; }
  bool has_own_kv() const { return exists() && kv_layer < 0; }

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  int64_t given_v_width() const { return int64_t{num_kv_heads} * given_value_dim(); }
  // Whether the gate is a module of its own.
  bool has_gate_module() const {
    return gate == AttentionGate::kEachNumber || gate == AttentionGate::kEachHead;
  }
  int64_t gate_width() const { return gate == AttentionGate::kInQueries ? q_width() : 0; }
  int64_t row_width() const { return gate_width() + qkv_width(); }  // [gate, q, k, v]
  // The size of a value in the cache, which a head attends to.
  int value_dim() const { return latent ? latent->kv_rank : head_dim; }
  // Numbers of a head of v, as v_proj gives them.
  int given_value_dim() const { return narrow_value_dim > 0 ? narrow_value_dim : head_dim; }
  // What the output projection reads of a head, and of all.
  int output_dim() const { return latent ? latent->value_dim : given_value_dim(); }
  int64_t output_width() const { return int64_t{num_heads} * output_dim(); }
  // What the first product makes of a row: with a latent vector q, or what it is made of, then the
  // latent vector and the shared key.
  int64_t latent_q_width() const {
    return latent->q_rank > 0 ? latent->q_rank : int64_t{num_heads} * latent->qk_dim();
  }
  int64_t first_width() const { return latent ? latent_q_width() + head_dim : row_width(); }
  int rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  float softmax_scale() const;
};

struct MlpSpec {
  std::string module;  // after the layer's name: "mlp", "feed_forward.shared_expert"
  // Where one module holds gate and up: its name after the MLP's; "" where each has its own.
  std::string gate_up_projection = {};
  std::string gate_projection = "gate_proj";  // "": there is no gate
  std::string up_projection = "up_proj";
  std::string down_projection = "down_proj";
  int64_t intermediate_size = 0;  // 0: there is none
  bool has_bias = false;          // on gate, up and down
  Activation activation = Activation::kSilu;
  float gate_factor = 1, output_factor = 1;  // of what gate and down give
  float limit = 0;                           // ActivationRule::limit
  std::string inner_norm = {};               // an RMS norm of what down_projection reads; "": none
  // Behind the layer's name: the module of one output whose sigmoid multiplies the MLP's result;
  // "" where there is none. Only beside experts.
  std::string output_gate = {};

  bool is_gated() const { return !gate_up_projection.empty() || !gate_projection.empty(); }
  // Rows of gate and up, or of up alone.
  int64_t inner_width() const { return is_gated() ? 2 * intermediate_size : intermediate_size; }
};

struct MoeSpec {
  std::string router_module;   // after the layer's name: "mlp.gate", "feed_forward.router"
  std::string experts_module;  // "mlp.experts"
  // Modules of each expert, after its name; no gate_projection: experts without a gate.
  std::string gate_projection = "gate_proj";
  std::string up_projection = "up_proj";
  std::string down_projection = "down_proj";
  // Tensors that hold all experts, after `experts_module`; [experts, in, out] where
  // fused_transposed, else [experts, out, in]. With fused_either: whichever the shape says, and
  // fused_transposed where it says neither.
  std::string fused_gate_up = "gate_up_proj";
  std::string fused_down = "down_proj";
  bool fused_transposed = false;
  bool fused_either = false;
  // Where each projection of all experts is a tensor: of gate and of up, in place of fused_gate_up.
  std::string fused_gate = {}, fused_up = {};
  // Such tensors are [experts * intermediate_size, hidden_size], that of down, too: DBRX.
  bool fused_flat = false;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;  // of each expert
  Activation activation = Activation::kSilu;
  kernels::SwigluClamp clamp = {};  // of kClampedSwiglu
  float limit = 0;                  // ActivationRule::limit
  bool router_bias = false;
  bool has_bias = false;  // of the experts, in tensors of all: "gate_up_proj_bias" [experts, out]
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  float jitter = 0;    // RouterRule::jitter
  float soft_cap = 0;  // RouterRule::soft_cap
  // Behind the layer's name: the tensor [experts] that is added to the scores for the choice alone;
  // "" where there is none.
  std::string choice_bias = {};
  bool may_lack_choice_bias = false;  // then there is none
  bool chooses_by_logits = false;     // RouterRule::chooses_by_logits
  // Experts are chosen within the best `kept_groups` of `num_groups` groups of neighbours.
  int num_groups = 1;
  int kept_groups = 1;
  int group_best = 2;         // so many of its best experts, 1 or 2, add up to a group's score
  bool normalize = false;     // the weights of a token's experts add up to 1
  float weight_scale = 1;     // of the weights, at last
  bool scale_inputs = false;  // the weight multiplies the expert's input instead of its output
  // Router, MLP and experts read norms of the residual of their own, and norms of both results are
  // added: Gemma 4. The router's norm is "<router_module>.scale" over the root of the width, its
  // matrix "<router_module>.proj", and "<router_module>.per_expert_scale" [experts] multiplies the
  // weights. LayerSpec::mlp_norms stand before the MLP and after the sum.
  struct OwnNorms {
    std::string mlp_after;  // after the layer's name, as the next
    std::string experts_before, experts_after;
  };
  std::optional<OwnNorms> own_norms = {};
  // Experts read a vector of `width` that is made of the rows, and what they make of it becomes a
  // row again; the router and the MLP read the rows. Nemotron 3 Super.
  struct Latent {
    int64_t width = 0;
    std::string down, up;  // modules after the layer's name, [width, hidden] and [hidden, width]
    bool has_bias = false;
  };
  std::optional<Latent> latent = {};

  bool is_gated() const { return !gate_projection.empty(); }
  int64_t inner_width() const { return is_gated() ? 2 * intermediate_size : intermediate_size; }
  // Numbers that an expert reads and gives.
  int64_t outer_width(int64_t hidden_size) const { return latent ? latent->width : hidden_size; }
};

// An embedding of each token for each layer, which passes a gate in a sub-layer after the MLP:
// delta = norm(project(gelu(gate(residual)) * own(token, layer))). What a layer reads of a token is
// the sum of "embed_tokens_per_layer" and of a norm of the embedding's projection: Gemma 4.
// Source: transformers' Gemma4TextModel.
struct LayerEmbeddingSpec {
  int64_t width = 0;  // of a token in a layer; 0: there are none
  int64_t vocab_size = 0;
};

// A mixer gives tokens sight of those before them by a state of a fixed size a sequence, where
// attention keeps keys and values of each token: a matrix a head, and the last inputs of a
// convolution. States are F32, and the state after a token is computed from the one before it and
// the token alone: results have the same bits wherever chunks of a prompt begin. Computing tokens
// in pieces, as some libraries do, would make sums depend on where a piece begins.
//
// Each channel's convolution sees `conv_width` inputs, the token's own last. Then:
//   kShortConvolution  [B, C, x] = in(input), each [num_heads]; C * convolution(B * x): LFM2
//   kDeltaRule         [q, k, v, z] = in(input); q, k and v = silu(convolution); q and k get length
//                      1. State S [key_dim, head_dim] of a head, decay g, rate b of the token:
//                      S = g S; S += k (b (v - k S)); q S / sqrt(key_dim): Gated DeltaNet
//   kStateSpace        [z, x, B, C, step] = in(input); x, B and C = silu(convolution); S = g S +
//                      B (step x); C S + D x, with g = exp(-exp(A_log) step): Mamba-2
// The results, gated by z and normed, pass `out`.
struct MixerSpec {
  enum class Kind { kShortConvolution, kDeltaRule, kStateSpace };
  // What modules the rows of the projections are in, after the mixer's name.
  enum class Projections {
    kOne,        // in_proj: all
    kByKeyHead,  // in_proj_qkvz, in_proj_ba: those of a key head follow each other
    kByKind,     // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a
    kOneByKind,  // in_proj: all, those of q, of k, v, z, b and a of all heads follow each other
    kEach,       // q_proj, k_proj, v_proj, g_proj, b_proj, a_proj
  };
  enum class Norm {
    kNone,
    kOfHeads,   // with weights [head_dim], before the gate
    kOfGroups,  // of the heads of a key head together, with weights [values_width]
  };
  Kind kind = Kind::kShortConvolution;
  std::string module = {};  // after the layer's name: "conv", "linear_attn", "mamba"
  Projections projections = Projections::kOne;
  int conv_width = 0;
  bool conv_bias = false;
  bool has_bias = false, output_bias = false;  // on the first projections, and on the last
  // Heads of values, each of which has a state [key_dim, head_dim], and of q and k, or B and C, of
  // which one serves num_heads / num_key_heads neighbours. Of a short convolution num_heads
  // channels of one number, and no keys.
  int num_heads = 0;
  int num_key_heads = 0;
  int head_dim = 0;
  int key_dim = 0;
  Norm norm = Norm::kNone;
  bool norms_before_gate = true;
  float norm_eps = 0;
  float rate_scale = 1;  // of the delta rule's rates
  // The delta rule with a decay of each number of a key, instead of one of each head. Its inputs
  // are f_proj's, plus dt_bias [num_heads * key_dim]: the decay is exp(bound * sigmoid(e^A_log *
  // x)) with a `decay_bound`, which is negative, else exp(-e^A_log * softplus(x)).
  bool decays_keys = false;
  float decay_bound = 0;
  // Rank of the two projections, f_a_proj and f_b_proj, of which f_proj is made then, and g_a_proj
  // and g_b_proj, of which z is; 0: one projection makes each.
  int low_rank = 0;
  bool has_sigmoid_gate = false;        // of z, in place of silu
  std::string output_projection = {};   // after the mixer's name; "": out_proj, or o_proj of kEach
  std::string norm_module = {};         // the same; "": norm, or o_norm of kEach
  float least_step = 0, most_step = 0;  // of Mamba-2; most_step 0: no limit
  // Factors of what in_proj gives: of z, x, B, C and step.
  std::array<float, 5> input_factors = {1, 1, 1, 1, 1};
  float output_factor = 1;  // of what `out` gives

  int64_t keys_width() const { return int64_t{num_key_heads} * key_dim; }
  int64_t values_width() const { return int64_t{num_heads} * head_dim; }
  int64_t conv_channels() const { return 2 * keys_width() + values_width(); }
  int64_t decays_width() const { return int64_t{num_heads} * key_dim; }
  // What the first projection gives: of a short convolution three numbers a channel, else q, k, v
  // and z (unless that is made by two), and where one module has all, steps.
  int64_t InputRows() const {
    if (kind == Kind::kShortConvolution) return 3 * values_width();
    if (low_rank > 0) return conv_channels();
    return conv_channels() + values_width() + (kind == Kind::kStateSpace ? num_heads : 0);
  }
  // F32 numbers of a sequence.
  int64_t tail_numbers() const { return (conv_width - 1) * conv_channels(); }
  int64_t matrix_numbers() const { return values_width() * key_dim; }
};

// The norms of whole rows.
struct NormSpec {
  enum class Kind { kRms, kLayer };
  Kind kind = Kind::kRms;
  bool has_weights = true;
  bool has_biases = false;  // of layer norms
};

// Names of the norms around a sub-layer, after the layer's name; "" where there is none.
struct NormModules {
  std::string before;    // of what the sub-layer reads
  std::string after;     // of its result, before that is added to the residual
  float eps_factor = 1;  // of DecoderSpec::norm_eps, in the norm before
};

// Attention, a mixer or both read the same norm, and their results are added; then an MLP or
// experts. A layer may have either half alone.
struct LayerSpec {
  NormModules attention_norms = {.before = "input_layernorm", .after = ""};
  AttentionSpec attention;
  std::optional<MixerSpec> mixer = {};
  NormModules mlp_norms = {.before = "post_attention_layernorm", .after = ""};
  // The MLP reads what attention reads, the residual before either's result: Cohere. Its norm may
  // be attention's, of the same name.
  bool is_parallel = false;
  // Behind the layer's name: the tensor [1] that multiplies the residual after the layer; "" where
  // there is none.
  std::string residual_factor = {};
  MlpSpec mlp;                 // the only one, or the one beside the experts that sees every token
  std::optional<MoeSpec> moe;  // experts

  bool mixes() const { return attention.exists() || mixer.has_value(); }
  bool has_mlp() const { return mlp.intermediate_size > 0 || moe.has_value(); }
};

// What is made of the rows that are wanted, after the final norm.
struct HeadSpec {
  enum class Kind {
    kVocabulary,  // logits [vocab_size]
    kNone,        // the rows themselves [hidden_size]
    kScores,      // [num_scores]: a linear layer in F32
  };
  Kind kind = Kind::kVocabulary;
  int64_t num_scores = 0;
  // kScores: the rows of the language model's head that are the layer's weights; empty: the weights
  // are the checkpoint's layer "score".
  std::vector<int32_t> tokens = {};
  bool is_difference = false;  // of two `tokens`: one score, the second row less the first
};

// Embedding, layers, final norm, head. The fields after `layers` are applied where they differ from
// their defaults.
struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  bool tied_head = false;  // the head is the embedding's table
  HeadSpec head;
  bool head_bias = false;  // of the language model's head
  NormSpec norm;
  float norm_eps = 0;
  std::string final_norm = "model.norm";
  std::optional<float> after_norm_eps = {};  // of norms after sub-layers; nullopt: norm_eps
  float final_norm_eps_factor = 1;
  bool norms_embedding = false;  // an RMS norm of the embedding's rows, without weights
  // Learnt embeddings of positions, which are added to those of the tokens.
  struct Positions {
    std::string module = {};  // a table [first + positions, hidden]; "": there is none
    int64_t first = 0;        // its row of position 0
    int64_t rows = 0;
  };
  Positions positions = {};
  // Tensors of linear layers are [in, out], but for the head: GPT-2.
  bool has_transposed_tensors = false;
  // Modules of layers that a file may have and that are not computed with: what their names begin
  // with, from "model." on.
  std::vector<std::string> unread_modules = {};
  // Angular frequencies, each [rotated / 2]; a layer names the one that it uses.
  std::vector<std::vector<float>> rope_tables;
  // What stands in for the first table where a context may be longer than `short_context`; empty:
  // the table serves all. See FitRope.
  std::vector<float> long_rope_table;
  int64_t short_context = 0;
  // The factor of the first table's cosines and sines; if whole heads are rotated, a factor of
  // their products may be in AttentionSpec::scale instead.
  float rope_amplitude = 1;
  // For the first table, if a token may have a position on each of three axes (time, row and
  // column: "M-RoPE"): the axis that each frequency turns with; empty: all turn with the token's
  // position.
  std::vector<int8_t> rope_axes;
  std::vector<LayerSpec> layers;
  // Layers that follow in the checkpoint and propose further tokens; they are not computed.
  int64_t num_draft_layers = 0;

  float norm_weight_offset = 0;  // added to every stored norm weight: 1 where w stands for 1 + w
  std::optional<float> final_norm_offset = {};  // of the last norm; nullopt: norm_weight_offset
  float embedding_scale = 1;                    // of the embedding's rows
  // Tokens that stand for parts of images, -1 for none: in a text they have the row of token 0.
  std::array<int32_t, 2> placeholders = {-1, -1};
  // Rows of images take the place of the embeddings of their tokens, and after each of the first
  // `image_levels` layers more is added to them (TowerSpec::levels). What reads the tokens
  // themselves finds `image_token` there; -1: the prompt's.
  int64_t image_levels = 0;
  int32_t image_token = -1;
  float residual_scale = 1;  // of what a sub-layer adds to the residual
  LayerEmbeddingSpec layer_embeddings;
  float logit_scale = 1;     // of the logits, before the soft cap
  float logit_soft_cap = 0;  // c: a logit x becomes c * tanh(x / c); 0: none

  // Settles which table serves contexts of up to `max_context` tokens. One for all, so that keys in
  // the cache stay right as a sequence grows.
  void FitRope(int64_t max_context);

  // Numbers that a wanted row gives.
  int64_t ResultSize() const {
    return head.kind == HeadSpec::Kind::kVocabulary ? vocab_size
           : head.kind == HeadSpec::Kind::kNone     ? hidden_size
                                                    : head.num_scores;
  }
  // Whether weights of a language model's head of its own are loaded.
  bool LoadsHead() const { return head.kind == HeadSpec::Kind::kVocabulary && !tied_head; }

  int64_t NumMoeLayers() const;
  // The first layer with experts; null where none has some.
  const LayerSpec* FirstMoeLayer() const;

  bool KeepsStates() const;  // whether any layer has a mixer
  // Whether heads are of the same numbers and width in all layers with attention, each of which has
  // its own keys and values.
  bool HasUniformHeads() const;
  int LargestHeadDim() const;
  // The attention of the layer whose keys are widest.
  const AttentionSpec& WidestKeys() const;
  int64_t NumKvLayers() const;  // that have keys and values of their own

  // The widest input of any matrix product but the head's, and the widest output of all but the
  // head and the experts.
  int64_t WidestInput() const;
  int64_t WidestOutput() const;

  // Whether inputs of products in BF16 are kept as two BF16 numbers. In models with experts a
  // rounding to one moves the choice between two experts that are nearly as good, and with it the
  // whole result of a row.
  bool SplitsInputs(ElementType compute_type) const;
};

}  // namespace sluice
