// The description of a decoder as data, which is all that differs between model families. The
// CPU's decoder (decoder.cc) and the device's (device/device_decoder.cc) interpret it.
#pragma once

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

// Of the gate of an MLP: down(activation(gate(x)) * up(x)).
enum class Activation {
  kSilu,
  kGeluTanh,  // GELU by tanh
  // Of experts whose rows of gate and up alternate: kernels/clamped_swiglu.h.
  kClampedSwiglu,
};

// The RMS norm of q and k.
enum class QkNorm {
  kNone,
  kBeforeRope,           // of each head, with weights of its own for q and for k
  kAfterRopeUnweighted,  // of each head: Llama 4
  kWholeWidth,           // of all heads of q, and of all of k, together, before rope: OLMo 2
};

// q is multiplied by log(floor((position + first) / floor_scale) + 1) * attn_scale + 1: Llama 4 in
// layers without rope, Ministral 3 in all.
struct TemperatureTuning {
  double floor_scale = 0;
  double attn_scale = 0;
  int first = 1;  // the number of the first position
};

struct AttentionSpec {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // Where one module holds q, k and v: its name behind the attention's; "" where each has its own.
  std::string qkv_projection = {};
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  std::optional<float> scale;  // of q . k; nullopt: 1 / sqrt(head_dim)
  bool rope = true;            // false: no position embedding (NoPE)
  int rotary_dim = 0;          // the first elements of a head, which rope rotates; 0: all
  int rope_table = 0;          // index into DecoderSpec::rope_tables
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  AttentionSpan span;
  std::optional<TemperatureTuning> temperature_tuning;
  float soft_cap = 0;  // c: a score s becomes c * tanh(s / c) before the softmax; 0: none
  // Each head has a learnt score ("sinks") beside those of the positions, with a value of zero.
  bool sinks = false;
  bool values_are_keys = false;  // v is k as it is before norm and rope: there is no v_proj
  bool norms_values = false;     // of each head of v, without weights
  // An earlier layer of the same heads and span, whose keys and values this one attends to: it has
  // none of its own; -1: its own.
  int kv_layer = -1;

  bool has_own_kv() const { return kv_layer < 0; }

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  int rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  float softmax_scale() const;
};

struct MlpSpec {
  std::string module;  // behind the layer's name: "mlp", "feed_forward.shared_expert"
  // Where one module holds gate and up: its name behind the MLP's; "" where each has its own.
  std::string gate_up_projection = {};
  std::string down_projection = "down_proj";
  int64_t intermediate_size = 0;  // 0: there is none
  bool has_bias = false;          // on gate, up and down
  Activation activation = Activation::kSilu;
  // Behind the layer's name: the module of one output whose sigmoid multiplies the MLP's result;
  // "" where there is none. Only beside experts.
  std::string output_gate = {};
};

struct MoeSpec {
  std::string router_module;   // behind the layer's name: "mlp.gate", "feed_forward.router"
  std::string experts_module;  // "mlp.experts"
  // Of each expert, behind its name.
  std::string gate_projection = "gate_proj";
  std::string up_projection = "up_proj";
  std::string down_projection = "down_proj";
  // Of tensors that hold all experts: [experts, in, out] instead of [experts, out, in].
  bool fused_transposed = false;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;  // of each expert
  Activation activation = Activation::kSilu;
  kernels::SwigluClamp clamp = {};  // of kClampedSwiglu
  bool router_bias = false;
  bool has_bias = false;  // of the experts, in tensors of all: "gate_up_proj_bias" [experts, out]
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  // Behind the layer's name: the tensor [experts] that is added to the scores for the choice alone;
  // "" where there is none.
  std::string choice_bias = {};
  bool normalize = false;     // the weights of a token's experts add up to 1
  float weight_scale = 1;     // of the weights, at last
  bool scale_inputs = false;  // the weight multiplies the expert's input instead of its output
  // Router, MLP and experts read norms of the residual of their own, and norms of both results are
  // added: Gemma 4. The router's norm is "<router_module>.scale" over the root of the width, its
  // matrix "<router_module>.proj", and "<router_module>.per_expert_scale" [experts] multiplies the
  // weights. LayerSpec::mlp_norms stand before the MLP and behind the sum.
  struct OwnNorms {
    std::string mlp_after;  // behind the layer's name, as the next
    std::string experts_before, experts_after;
  };
  std::optional<OwnNorms> own_norms = {};
};

// An embedding of each token for each layer, which passes a gate in a sub-layer behind the MLP:
// delta = norm(project(gelu(gate(residual)) * own(token, layer))). What a layer reads of a token is
// the sum of "embed_tokens_per_layer" and of a norm of the embedding's projection: Gemma 4.
// Source: transformers' Gemma4TextModel.
struct LayerEmbeddingSpec {
  int64_t width = 0;  // of a token in a layer; 0: there are none
  int64_t vocab_size = 0;
};

// Names of the RMS norms around a sub-layer, behind the layer's name; "" where there is none.
struct NormModules {
  std::string before;  // of what the sub-layer reads
  std::string after;   // of its result, before that is added to the residual
};

struct LayerSpec {
  NormModules attention_norms = {.before = "input_layernorm", .after = ""};
  AttentionSpec attention;
  NormModules mlp_norms = {.before = "post_attention_layernorm", .after = ""};
  // Behind the layer's name: the tensor [1] that multiplies the residual behind the layer; "" where
  // there is none.
  std::string residual_factor = {};
  MlpSpec mlp;                 // the only one, or the one beside the experts that sees every token
  std::optional<MoeSpec> moe;  // experts
};

// What is made of the rows that are wanted, behind the final norm.
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
  float norm_eps = 0;
  // Angular frequencies, each [rotated / 2]; a layer names the one that it uses.
  std::vector<std::vector<float>> rope_tables;
  // What stands in for the first table where a context may be longer than `short_context`; empty:
  // the table serves all. See FitRope.
  std::vector<float> long_rope_table;
  int64_t short_context = 0;
  // Of the cosines and sines of the first table; where whole heads are rotated, a factor of their
  // products may stand in AttentionSpec::scale instead.
  float rope_amplitude = 1;
  std::vector<LayerSpec> layers;
  // Layers that follow in the checkpoint and propose further tokens; they are not computed.
  int64_t num_draft_layers = 0;

  float norm_weight_offset = 0;  // added to every stored norm weight: 1 where w stands for 1 + w
  float embedding_scale = 1;     // of the embedding's rows
  float residual_scale = 1;      // of what a sub-layer adds to the residual
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

  // Whether heads are of the same numbers and width in all layers, each of which has its own keys
  // and values.
  bool HasUniformHeads() const;
  int LargestHeadDim() const;
  // Of the layer whose keys take most.
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
