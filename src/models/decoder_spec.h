// What distinguishes one decoder family from another, as data for the shared layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_config.h"
#include "kernels/attention.h"
#include "kernels/experts.h"
#include "kernels/rope.h"

namespace sluice {

// The RMS norm of each head of q and k.
enum class QkNorm {
  kNone,
  kBeforeRope,          // with weights of its own for q and for k
  kAfterRopeUnweighted  // Llama 4
};

struct AttentionSpec {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool rope = true;  // false: positions are not coded into q and k
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  AttentionSpan span;
  std::optional<TemperatureTuning> temperature_tuning;

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

struct MlpSpec {
  std::string module;             // behind the layer's name: "mlp", "feed_forward.shared_expert"
  int64_t intermediate_size = 0;  // 0: there is none
  bool has_bias = false;          // on gate, up and down
};

struct MoeSpec {
  std::string router_module;   // behind the layer's name: "mlp.gate", "feed_forward.router"
  std::string experts_module;  // "mlp.experts"
  // Of tensors that hold all experts: [experts, in, out] instead of [experts, out, in].
  bool fused_transposed = false;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;  // of each expert
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  bool normalize = false;     // the weights of a token's experts add up to 1
  bool scale_inputs = false;  // the weight multiplies the expert's input instead of its output
};

struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;                 // the only one, or the one beside the experts that sees every token
  std::optional<MoeSpec> moe;  // experts
};

// A pre-norm decoder: embedding, layers, final norm, head.
struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  bool tied_head = false;  // the head is the embedding's table
  float norm_eps = 0;
  std::vector<float> rope_frequencies;  // [head_dim / 2]
  std::vector<LayerSpec> layers;        // all with the same attention shape

  std::vector<AttentionSpan> Spans() const;  // by layer

  // The widest input of any matrix product but the head's, and the widest output of all but the
  // head and the experts.
  int64_t WidestInput() const;
  int64_t WidestOutput() const;

  // Whether inputs of products in BF16 are kept as two BF16 numbers. In models with experts a
  // rounding to one moves the choice between two experts that are nearly as good, and with it the
  // whole result of a row.
  bool SplitsInputs(ElementType compute_type) const;
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
