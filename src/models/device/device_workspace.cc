#include "models/device/device_workspace.h"

#include <algorithm>

#include "device/array_cutter.h"
#include "kernels/cuda/linear_plan.h"
#include "models/largest_sizes.h"

namespace sluice {
namespace {

// The MLP's intermediates are the widest arrays. Going through in parts bounds them; at this many
// rows a product is long limited by arithmetic.
constexpr int64_t kDeviceMlpRows = 2048;
constexpr int64_t kDeviceMoePairs = 8192;

}  // namespace

int64_t FrequenciesBefore(const DecoderSpec& spec, int64_t table) {
  int64_t count = 0;
  for (int64_t i = 0; i < table; ++i) count += std::ssize(spec.rope_tables[static_cast<size_t>(i)]);
  return count;
}

DeviceWorkspaceLayout DeviceWorkspaceLayout::For(const DecoderSpec& spec,
                                                 const ModelOptions& options,
                                                 const DeviceWorkspaceNeeds& needs,
                                                 const RankPlace& place, bool keeps_apart) {
  const DecoderSpec share = ShareOf(spec, place);
  const bool is_shared = place.tensor_size > 1;
  const auto own_rows_of = [&](int64_t count) {
    return CutRows(count, place.tensor_rank, place.tensor_size).size();
  };
  const int64_t rows = options.max_rows, hidden = spec.hidden_size;
  const int64_t logit_rows = std::min(options.max_logit_rows, rows);
  const LargestSizes largest(spec), own(share);
  const int64_t experts = largest.experts;
  // Embeddings in layers go through the arrays of the MLP.
  const int64_t embedding_width = spec.layer_embeddings.width;
  const int64_t intermediate = std::max(largest.intermediate, embedding_width);
  const int64_t top_k = largest.top_k, expert_intermediate = largest.expert_intermediate;
  DeviceWorkspaceLayout layout;
  layout.wide = experts > 0 ? ElementType::kF32 : ElementType::kBF16;
  const int64_t wide_bytes = experts > 0 ? 4 : 2;
  constexpr int64_t kRowBytes = 2;
  layout.mlp_rows = std::min(rows, kDeviceMlpRows);
  if (experts > 0) layout.moe_pairs = std::max(top_k, std::min(rows * top_k, kDeviceMoePairs));

  ArrayCutter cutter(keeps_apart);
  const auto take = [&](int64_t bytes) { return cutter.Take(bytes); };
  layout.residual = take(rows * hidden * 4);
  layout.delta = take(rows * hidden * 4);
  layout.last_residual = take(logit_rows * hidden * 4);
  layout.normed = take(rows * hidden * kRowBytes);
  layout.cos_sin = take(2 * FrequenciesBefore(spec, std::ssize(spec.rope_tables)) * rows * 4);
  layout.normed_scales = take(rows * 4);
  const bool has_logits = spec.head.kind == HeadSpec::Kind::kVocabulary;
  if (place.rank() == 0)
    layout.logits = take(logit_rows * (has_logits ? spec.vocab_size : hidden) * 4);
  layout.step_inputs = take(needs.step_inputs);
  layout.linear_scratch = take(needs.linear_scratch);
  layout.linear_counters = take(device::kLinearCounterBytes);
  layout.ordered = take(needs.ordered_inputs);
  layout.lora = take(std::max(rows, layout.moe_pairs) * needs.lora_ranks * 4);
  if (embedding_width > 0) {
    layout.layer_embeddings = take(rows * std::ssize(spec.layers) * embedding_width * 4);
    layout.last_layer_embeddings = take(logit_rows * embedding_width * 4);
  }
  if (is_shared) {
    layout.joined = take(rows * std::max(hidden * 4, largest.q_width * kRowBytes));
    layout.own_delta = take(rows * own_rows_of(hidden) * 4);
  }

  const int64_t shared = cutter.planned_end();
  layout.qkv = take(rows * own.qkv_width * wide_bytes);
  layout.q = take(rows * own.q_width * 2);
  layout.attended = take(rows * largest.q_width * 2);
  layout.own_attended = is_shared ? take(rows * own.q_width * 2) : layout.attended;
  layout.attended_last = take(logit_rows * own.q_width * 2);
  layout.attended_f8 = take(rows * largest.q_width);
  layout.attended_scales = take(rows * 4);
  layout.partials = take(needs.attention_partials);
  if (largest.normed_heads > 0) {
    const int64_t bytes = rows * largest.normed_heads * 4;  // there are fewer of k, if anything
    layout.q_squares = take(bytes);
    layout.k_squares = take(bytes);
    if (is_shared) layout.own_q_squares = take(bytes);
    if (is_shared) layout.own_k_squares = take(bytes);
  }

  cutter.ShareFrom(shared);
  const int64_t widest =
      std::max(layout.mlp_rows * intermediate, layout.moe_pairs * expert_intermediate);
  const int64_t own_widest = std::max(layout.mlp_rows * std::max(own.intermediate, embedding_width),
                                      layout.moe_pairs * own.expert_intermediate);
  layout.gate_up = take(2 * own_widest * wide_bytes);
  layout.activated = take(widest * kRowBytes);
  layout.activated_scales = take(std::max(layout.mlp_rows, layout.moe_pairs) * 4);
  if (is_shared) {
    const int64_t bytes = needs.rounds_whole_rows ? 4 : kRowBytes;
    layout.own_activated = take(own_widest * bytes);
    layout.joined_activated = take(widest * bytes);
    if (needs.rounds_whole_rows) layout.activated_f32 = take(widest * bytes);
  }
  if (experts > 0) {
    layout.normed_f32 = take(rows * hidden * 4);
    layout.router_logits = take(rows * experts * 4);
    if (largest.has_output_gate) layout.shared_gates = take(rows * 4);
    layout.chosen = take(rows * top_k * 4);
    layout.expert_weights = take(rows * top_k * 4);
    layout.order = take(layout.moe_pairs * 4);
    layout.place = take(layout.moe_pairs * 4);
    layout.row_begin = take((experts + 1) * 4);
    layout.gathered = take(layout.moe_pairs * hidden * kRowBytes);
    layout.gathered_scales = take(layout.moe_pairs * 4);
    layout.expert_results = take(layout.moe_pairs * own_rows_of(hidden) * 4);
    if (largest.has_own_norms) layout.expert_delta = take(rows * hidden * 4);
  }

  cutter.ShareFrom(shared);  // when the layers are done
  if (is_shared && place.is_first_stage() && has_logits) {
    layout.own_logits = take(logit_rows * own_rows_of(spec.vocab_size) * 4);
    if (place.rank() == 0) layout.joined_logits = take(logit_rows * spec.vocab_size * 4);
  }
  layout.total_bytes = cutter.total_bytes();
  layout.gaps = cutter.gaps();
  return layout;
}

}  // namespace sluice
