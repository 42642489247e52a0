#include "models/workspace.h"

#include <algorithm>

#include "base/integer.h"
#include "models/largest_sizes.h"

namespace sluice {
namespace {

constexpr int64_t kAlignment = 64;
// The MLP's intermediates are the widest arrays. Going through in parts bounds them; at this many
// rows a pass over the weights is long limited by arithmetic.
constexpr int64_t kMlpRows = 768;

// Most pairs of a row and an expert at once: enough that a pass over the weights of many experts
// finds some rows for each of them.
constexpr int64_t kMoePairs = 4096;
// Rows whose inputs are split at once.
constexpr int64_t kSplitRows = 256;

int64_t BytesOf(ElementType type) {
  return BitsPerElement(type) / 8;
}

bool HasSharedGate(const DecoderSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const LayerSpec& layer) { return !layer.mlp.output_gate.empty(); });
}

}  // namespace

kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options) {
  const AttentionSpec& attention = spec.layers.front().attention;
  return {.num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.head_dim,
          .block_size = options.block_size,
          .type = options.kv_type};
}

InputRounding RoundingOf(const ActivationFormat& format, const ModelOptions& options) {
  using Asked = ModelOptions::ActivationRounding;
  if (format.kind == ActivationFormat::Kind::kNone || options.activation_format == Asked::kBf16)
    return InputRounding::kNone;
  const bool asked = options.activation_format == Asked::kCheckpoint;
  if (format.kind == ActivationFormat::Kind::kInt8PerToken) {
    return asked || options.compute_type == ElementType::kBF16 ? InputRounding::kInt8
                                                               : InputRounding::kNone;
  }
  return asked ? InputRounding::kF32 : InputRounding::kNone;
}

WorkspaceLayout WorkspaceLayout::For(const DecoderSpec& spec, const ModelOptions& options,
                                     int num_threads, InputRounding rounding,
                                     const RankPlace& place) {
  const AttentionSpec& attention = spec.layers.front().attention;
  const DecoderSpec share = ShareOf(spec, place);
  const AttentionSpec& own = share.layers.front().attention;
  const bool is_shared = place.tensor_size > 1;
  const int64_t own_hidden = CutRows(spec.hidden_size, place.tensor_rank, place.tensor_size).size();
  const int64_t rows = options.max_rows;
  const bool splits = spec.SplitsInputs(options.compute_type);
  const int64_t row_bytes =
      splits || rounding != InputRounding::kNone ? 4 : BytesOf(options.compute_type);
  const LargestSizes largest(spec);
  const LargestSizes own_largest(share);
  WorkspaceLayout layout;
  layout.rounding = rounding;
  int64_t end = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t offset = end;
    end = RoundUp(end + bytes, kAlignment);
    return offset;
  };
  layout.residual = take(rows * spec.hidden_size * 4);
  layout.delta = take(rows * spec.hidden_size * 4);
  const int64_t last_bytes =  // of a row behind the final norm
      spec.head.kind == HeadSpec::Kind::kVocabulary ? row_bytes : int64_t{4};
  layout.normed =
      take(rows * std::max(spec.hidden_size * last_bytes, attention.q_width() * row_bytes));
  layout.cos_sin =
      take(static_cast<int64_t>(spec.rope_tables.size()) * rows * attention.head_dim * 4);
  layout.mlp_rows = std::min(rows, kMlpRows);
  if (largest.experts > 0)
    layout.moe_pairs = std::max(largest.top_k, std::min(rows * largest.top_k, kMoePairs));
  layout.rounded_rows = std::min(rows, splits ? kSplitRows : kMlpRows);
  if (splits || rounding != InputRounding::kNone) {
    const int64_t elements =
        std::max(layout.rounded_rows * spec.WidestInput(),
                 layout.moe_pairs * std::max(spec.hidden_size, largest.expert_intermediate));
    layout.rounded = take(elements * (splits || rounding == InputRounding::kF32 ? 4 : 1));
    layout.rounded_scales = take(std::max(layout.rounded_rows, layout.moe_pairs) * 4);
  }
  if (splits) {
    layout.split_results = take(
        2 * 4 *
        std::max(layout.rounded_rows * share.WidestOutput(),
                 layout.moe_pairs * std::max(own_hidden, 2 * own_largest.expert_intermediate)));
  }

  layout.own_delta = is_shared ? take(rows * own_hidden * 4) : layout.delta;

  const int64_t shared = end;
  layout.qkv = take(rows * own.qkv_width() * 4);
  layout.scratch_bytes =
      kernels::AttentionScratchBytes(KvLayoutOf(share, options), own.num_heads, rows,
                                     options.max_slices, options.max_context, num_threads);
  layout.scratch = take(layout.scratch_bytes);
  layout.own_attended = is_shared ? take(rows * own.q_width() * row_bytes) : layout.normed;
  const int64_t attention_end = end;

  end = shared;
  if (is_shared && place.is_first_stage()) {
    layout.own_logits =
        take(options.max_logit_rows *
             CutRows(spec.vocab_size, place.tensor_rank, place.tensor_size).size() * 4);
  }
  const int64_t logits_end = end;

  end = shared;
  if (largest.experts > 0) {
    layout.router_logits = take(rows * largest.experts * 4);
    layout.chosen = take(rows * largest.top_k * 4);
    layout.expert_weights = take(rows * largest.top_k * 4);
    if (HasSharedGate(spec)) layout.shared_gates = take(rows * 4);
    layout.order = take(layout.moe_pairs * 4);
    layout.place = take(layout.moe_pairs * 4);
    layout.row_begin = take((largest.experts + 1) * 4);
    layout.gathered = take(layout.moe_pairs * spec.hidden_size * row_bytes);
    layout.expert_results = take(layout.moe_pairs * own_hidden * 4);
  }
  const auto widest = [&](const LargestSizes& sizes) {
    return std::max(layout.mlp_rows * sizes.intermediate,
                    layout.moe_pairs * sizes.expert_intermediate);
  };
  layout.gate_up = take(2 * widest(own_largest) * 4);
  layout.activated = take(widest(largest) * row_bytes);
  layout.own_activated = is_shared ? take(widest(own_largest) * row_bytes) : layout.activated;
  layout.total_bytes = std::max({end, attention_end, logits_end});
  return layout;
}

Result<Workspace> Workspace::Allocate(const WorkspaceLayout& layout) {
  Workspace workspace;
  workspace.layout_ = layout;
  ASSIGN_OR_RETURN(workspace.memory_, Buffer::Allocate(static_cast<size_t>(layout.total_bytes),
                                                       "the workspace of a step"));
  return workspace;
}

}  // namespace sluice
