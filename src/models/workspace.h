// The memory of one step's activations, laid out once for the largest step.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/matrix.h"
#include "models/decoder_spec.h"
#include "models/model.h"
#include "models/shard.h"
#include "tensor/activation_format.h"
#include "tensor/buffer.h"

namespace sluice {

// How a linear layer's inputs are rounded before the product.
enum class InputRounding : uint8_t {
  kNone,  // nothing
  kInt8,  // they become integers with a scale a row
  kF32,   // they are rounded to a narrow format and written as F32
};

// The rounding that the options select for inputs that a scheme rounds to `format`. INT8 inputs are
// both the format's own and the fastest, so they are the default where products are not in F32;
// other formats are rounded to on request alone.
InputRounding RoundingOf(const ActivationFormat& format, const ModelOptions& options);

// Byte offsets of the step's arrays. Arrays that are never alive together share memory: the normed
// rows with the attention's result, and the attention's arrays with those of the MLP and the
// experts, and with `layer_lookups`. "Row type" is F32 where any layer rounds or splits its inputs,
// else the compute type.
struct WorkspaceLayout {
  // [rows, hidden] F32, one for each step in flight: a stage hands its residual on while it
  // computes the next step. Behind it what else is handed on (stage_rows.h).
  int64_t residual = 0;
  int64_t residual_bytes = 0;  // of one
  int64_t delta = 0;           // [rows, hidden] F32: what the last sub-layer adds to the residual
  int64_t normed = 0;   // [rows, max(hidden, q_width)] row type: input of the next matrix product
  int64_t cos_sin = 0;  // [rope tables, rows of the step, largest head_dim] F32
  int64_t layer_embeddings =
      0;                      // [rows, layers, width] F32: LayerEmbeddingSpec, in the first stage
  int64_t layer_lookups = 0;  // the same while they are made
  int64_t layer_gates = 0;    // [rows, 2 * width of the rank] F32
  int64_t rounded = 0;  // [rounded_rows, widest input] I8, F32, or two BF16: inputs of a product
  int64_t rounded_scales = 0;  // [rounded_rows, or moe_pairs] F32
  int64_t rounded_rows = 0;    // rows that are rounded or split at once
  int64_t split_results = 0;   // [2 * rounded_rows, widest output] F32

  int64_t qkv = 0;      // [rows, qkv_width] F32
  int64_t scratch = 0;  // of the attention
  int64_t scratch_bytes = 0;

  // Of ranks that share layers: their own columns, until they are gathered. Elsewhere these are the
  // arrays themselves.
  int64_t own_delta = 0;      // [rows, hidden] F32
  int64_t own_attended = 0;   // [rows, q_width] row type
  int64_t own_activated = 0;  // [mlp_rows or moe_pairs, intermediate] row type
  int64_t own_qk = 0;         // [rows, q_width of the rank] F32, with QkNorm::kWholeWidth
  int64_t whole_qk = 0;       // [rows, q_width of all] F32, the same
  int64_t own_logits = 0;     // [max_logit_rows, vocabulary] F32
  int64_t own_projected = 0;  // [rows, layers * width] F32: of layer_lookups
  int64_t own_gated = 0;      // [rows, width] row type: of a layer's embedding

  // Of the router, in layers with experts.
  int64_t router_logits = 0;   // [rows, experts] F32
  int64_t chosen = 0;          // [rows, top_k] I32
  int64_t expert_weights = 0;  // [rows, top_k] F32
  int64_t shared_gates = 0;    // [rows] F32: of the MLP beside the experts, where it has a gate
  int64_t order = 0;           // [moe_pairs] I32
  int64_t place = 0;           // [moe_pairs] I32
  int64_t row_begin = 0;       // [experts + 1] I32
  int64_t moe_pairs = 0;       // most pairs of a row and an expert that are computed at once
  // Of the MLP, or of the experts with moe_pairs in place of mlp_rows.
  int64_t gate_up = 0;         // [mlp_rows, 2 * intermediate] F32
  int64_t activated = 0;       // [mlp_rows, intermediate] row type
  int64_t mlp_rows = 0;        // rows that go through the MLP at once
  int64_t expert_delta = 0;    // [rows, hidden] F32: with MoeSpec::own_norms
  int64_t gathered = 0;        // [moe_pairs, hidden] row type
  int64_t expert_results = 0;  // [moe_pairs, hidden] F32

  int64_t total_bytes = 0;
  InputRounding rounding = InputRounding::kNone;  // that it is for

  // Of the rank at `place`. `rounding`: the most that any layer needs.
  static WorkspaceLayout For(const DecoderSpec& spec, const ModelOptions& options, int num_threads,
                             InputRounding rounding, const RankPlace& place = {});
};

// The arrays themselves.
// Ownership: owns the memory; move-only.
class Workspace {
 public:
  static Result<Workspace> Allocate(const WorkspaceLayout& layout);

  const WorkspaceLayout& layout() const { return layout_; }
  // Of the step that was chosen.
  float* residual() const {
    return At<float>(layout_.residual + residual_index_ * layout_.residual_bytes);
  }
  void ChooseResidual(int64_t index) { residual_index_ = index; }
  float* delta() const { return At<float>(layout_.delta); }
  void* normed() const { return At<std::byte>(layout_.normed); }
  void* attended() const { return normed(); }
  float* own_delta() const { return At<float>(layout_.own_delta); }
  void* own_attended() const { return At<std::byte>(layout_.own_attended); }
  void* own_activated() const { return At<std::byte>(layout_.own_activated); }
  float* own_qk() const { return At<float>(layout_.own_qk); }
  float* whole_qk() const { return At<float>(layout_.whole_qk); }
  float* own_logits() const { return At<float>(layout_.own_logits); }
  float* cos_sin() const { return At<float>(layout_.cos_sin); }
  float* layer_embeddings() const { return At<float>(layout_.layer_embeddings); }
  float* layer_lookups() const { return At<float>(layout_.layer_lookups); }
  float* layer_gates() const { return At<float>(layout_.layer_gates); }
  float* own_projected() const { return At<float>(layout_.own_projected); }
  void* own_gated() const { return At<std::byte>(layout_.own_gated); }
  void* rounded() const { return At<std::byte>(layout_.rounded); }
  float* rounded_scales() const { return At<float>(layout_.rounded_scales); }
  int64_t rounded_rows() const { return layout_.rounded_rows; }
  float* split_results() const { return At<float>(layout_.split_results); }
  float* qkv() const { return At<float>(layout_.qkv); }
  std::span<std::byte> scratch() const {
    return {At<std::byte>(layout_.scratch), static_cast<size_t>(layout_.scratch_bytes)};
  }
  float* router_logits() const { return At<float>(layout_.router_logits); }
  int32_t* chosen() const { return At<int32_t>(layout_.chosen); }
  float* expert_weights() const { return At<float>(layout_.expert_weights); }
  float* shared_gates() const { return At<float>(layout_.shared_gates); }
  int32_t* order() const { return At<int32_t>(layout_.order); }
  int32_t* place() const { return At<int32_t>(layout_.place); }
  int32_t* row_begin() const { return At<int32_t>(layout_.row_begin); }
  int64_t moe_pairs() const { return layout_.moe_pairs; }
  float* gate_up() const { return At<float>(layout_.gate_up); }
  void* activated() const { return At<std::byte>(layout_.activated); }
  int64_t mlp_rows() const { return layout_.mlp_rows; }
  float* expert_delta() const { return At<float>(layout_.expert_delta); }
  void* gathered() const { return At<std::byte>(layout_.gathered); }
  float* expert_results() const { return At<float>(layout_.expert_results); }

 private:
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }

  WorkspaceLayout layout_;
  int64_t residual_index_ = 0;
  Buffer memory_;
};

// The most pairs of a row and an expert that are computed at once in steps of up to `max_rows`
// rows, each of which goes through `top_k` experts; 0 where there are none.
int64_t MostExpertPairs(int64_t top_k, int64_t max_rows);

// The layout of the KV cache that the options ask for: of the layer whose keys take most.
kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options);
// The same of any model: an encoder has no layers in its DecoderSpec.
kernels::KvLayout KvLayoutOf(const ModelConfig& config, const ModelOptions& options);

}  // namespace sluice
