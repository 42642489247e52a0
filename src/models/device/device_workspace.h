// The memory of a step on a device, laid out once for the largest step.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device_pool.h"
#include "kernels/cuda/device_kernels.h"
#include "models/decoder_spec.h"
#include "models/model.h"
#include "models/shard.h"

namespace sluice {

// Frequencies of the rope tables before table `table`, of those that lie one behind the other.
int64_t FrequenciesBefore(const DecoderSpec& spec, int64_t table);

// Sizes of the parts that other components lay out.
struct DeviceWorkspaceNeeds {
  int64_t attention_partials = 0;  // bytes
  int64_t linear_scratch = 0;      // bytes
  int64_t step_inputs = 0;         // bytes
  int64_t ordered_inputs = 0;      // bytes
  int64_t lora_ranks = 0;          // F32 numbers of a row
  // Whether a row of the MLP is rounded by what all of its numbers are: ranks then gather it in F32
  // before.
  bool rounds_whole_rows = false;
};

// Byte offsets of the step's arrays, aligned to 256. The arrays of the attention share memory with
// those of the MLP and the experts: they are never alive together.
//
// "Row type" is what a product reads: BF16 (of NVFP4 numbers too), or E4M3, which takes less. "Wide
// type" is `wide`.
//
// Of ranks that share a layer each writes its own columns to the arrays `own_...`, dense, gathers
// the pieces of all ranks in `joined_...`, and joins them to whole rows. Alone, `own_attended` is
// `attended` and the others are not there.
struct DeviceWorkspaceLayout {
  // What products write that a nonlinear function reads: keys, values, gates. In models with
  // experts it is F32, since a rounding moves the choice between two experts that are nearly as
  // good; in others BF16 halves what is written and read again.
  ElementType wide = ElementType::kBF16;

  int64_t residual = 0;       // F32 [rows, hidden]
  int64_t delta = 0;          // F32 [rows, hidden]: what the last sub-layer adds to the residual
  int64_t last_residual = 0;  // F32 [logit rows, hidden]: of the rows whose logits are wanted
  int64_t normed = 0;         // [rows, hidden], row type
  // F32, of each rope table [rows of the step, 2 * its frequencies], one behind the other.
  int64_t cos_sin = 0;
  int64_t normed_scales = 0;  // F32 [rows], of rounded rows
  int64_t logits = 0;         // F32 [logit rows, vocab]
  int64_t step_inputs = 0;
  int64_t linear_scratch = 0;
  int64_t linear_counters = 0;  // U32 [kMostSplitTiles], zeros between products
  int64_t joined = 0;           // of [rows, the wider of hidden F32 and q_width BF16]
  int64_t own_delta = 0;        // F32 [rows, own rows of hidden]
  // What layers read of tokens (LayerEmbeddingSpec): F32 [rows, layers, width]; and of the last
  // layer, for the rows whose logits are wanted: F32 [logit rows, width].
  int64_t layer_embeddings = 0;
  int64_t last_layer_embeddings = 0;
  int64_t ordered = 0;  // BF16: inputs of a product in the order of its matrix
  int64_t lora = 0;     // AddLoraArgs::h, of rows or pairs of a row and an expert

  int64_t qkv = 0;              // [rows, own qkv_width], wide type
  int64_t q = 0;                // BF16 [rows, own q_width]
  int64_t own_attended = 0;     // BF16 [rows, own q_width]
  int64_t attended = 0;         // BF16 [rows, q_width]
  int64_t attended_last = 0;    // BF16 [logit rows, own q_width]
  int64_t attended_f8 = 0;      // E4M3 [rows, q_width]
  int64_t attended_scales = 0;  // F32 [rows]
  int64_t partials = 0;         // of the attention
  // QkNorm::kWholeWidth: F32, of all heads, and of those that this rank has.
  int64_t q_squares = 0, k_squares = 0, own_q_squares = 0, own_k_squares = 0;

  int64_t mlp_rows = 0;   // rows that go through the MLP at once
  int64_t gate_up = 0;    // [mlp_rows, 2 * own intermediate] or experts' [moe_pairs, ..], wide type
  int64_t activated = 0;  // the same with [.., intermediate], row type
  int64_t activated_scales = 0;  // F32 [mlp_rows, or moe_pairs]
  int64_t own_activated = 0;     // row type, or F32 where rows are rounded as a whole
  int64_t joined_activated = 0;
  int64_t activated_f32 = 0;  // where rows are rounded as a whole
  int64_t own_logits = 0;     // F32 [logit rows, own words]
  int64_t joined_logits = 0;

  // In layers with experts.
  int64_t normed_f32 = 0;       // F32 [rows, hidden]
  int64_t router_logits = 0;    // F32 [rows, experts]
  int64_t shared_gates = 0;     // F32 [rows], before the sigmoid; with MlpSpec::output_gate
  int64_t chosen = 0;           // I32 [rows, top_k]
  int64_t expert_weights = 0;   // F32 [rows, top_k]
  int64_t moe_pairs = 0;        // most pairs of a row and an expert that are computed at once
  int64_t order = 0;            // I32 [moe_pairs]
  int64_t place = 0;            // I32 [moe_pairs]
  int64_t row_begin = 0;        // I32 [experts + 1]
  int64_t gathered = 0;         // [moe_pairs, hidden], row type
  int64_t gathered_scales = 0;  // F32 [moe_pairs]
  int64_t expert_results = 0;   // F32 [moe_pairs, own rows of hidden]
  int64_t expert_delta = 0;     // F32 [rows, hidden], with MoeSpec::own_norms

  int64_t total_bytes = 0;
  std::vector<ArrayGap> gaps;

  // Of the rank at `place`. Without needs, for the sizes alone that others' needs depend on.
  // `keeps_apart`: as ArrayCutter.
  static DeviceWorkspaceLayout For(const DecoderSpec& spec, const ModelOptions& options,
                                   const DeviceWorkspaceNeeds& needs = {},
                                   const RankPlace& place = {}, bool keeps_apart = false);
};

}  // namespace sluice
