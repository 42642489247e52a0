#include "models/workspace.h"

#include <algorithm>

#include "base/integer.h"
#include "models/largest_sizes.h"
#include "models/stage_rows.h"

namespace sluice {
namespace {

constexpr int64_t kWorkspaceAlignment = 64;
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

kernels::KvLayout LayoutOf(const AttentionSpec& attention, const ModelOptions& options) {
  return {.num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.head_dim,
          .block_size = options.block_size,
          .type = options.kv_type};
}

}  // namespace

kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options) {
  return LayoutOf(spec.WidestKeys(), options);
}

kernels::KvLayout KvLayoutOf(const ModelConfig& config, const ModelOptions& options) {
  if (!config.spec.layers.empty()) return KvLayoutOf(config.spec, options);
  AttentionSpec attention;
  attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
  attention.head_dim = static_cast<int>(config.head_dim);
  return LayoutOf(attention, options);
}

int64_t MostExpertPairs(int64_t top_k, int64_t max_rows) {
  return std::max(top_k, std::min(max_rows * top_k, kMoePairs));
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
  const DecoderSpec share = ShareOf(spec, place);
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
    end = RoundUp(end + bytes, kWorkspaceAlignment);
    return offset;
  };
  layout.residual_bytes =
      RoundUp(rows * StageRows::For(spec, place).widest() * 4, kWorkspaceAlignment);
  layout.residual = take(place.num_stages * layout.residual_bytes);
  layout.delta = take(rows * spec.hidden_size * 4);
  const int64_t last_bytes =  // of a row behind the final norm
      spec.head.kind == HeadSpec::Kind::kVocabulary ? row_bytes : int64_t{4};
  layout.normed = take(rows * std::max({spec.hidden_size * last_bytes, largest.q_width * row_bytes,
                                        spec.layer_embeddings.width * row_bytes}));
  layout.cos_sin =
      take(static_cast<int64_t>(spec.rope_tables.size()) * rows * spec.LargestHeadDim() * 4);
  // Of all layers, which the first stage computes; the others receive theirs.
  const int64_t embedding_width =
      place.is_first_stage() ? spec.layer_embeddings.width * std::ssize(spec.layers) : 0;
  const int64_t own_embedding_width =
      CutRows(embedding_width, place.tensor_rank, place.tensor_size).size();
  if (spec.layer_embeddings.width > 0) {
    layout.layer_embeddings = take(rows * embedding_width * 4);
    layout.layer_gates = take(rows * 2 * share.layer_embeddings.width * 4);
  }
  layout.mlp_rows = std::min(rows, kMlpRows);
  layout.moe_pairs = MostExpertPairs(largest.top_k, rows);
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
        std::max(layout.rounded_rows * std::max(share.WidestOutput(), own_embedding_width),
                 layout.moe_pairs * std::max(own_hidden, 2 * own_largest.expert_intermediate)));
  }

  layout.own_delta = is_shared ? take(rows * own_hidden * 4) : layout.delta;

  const int64_t shared = end;
  layout.qkv = take(rows * own_largest.qkv_width * 4);
  for (const LayerSpec& layer : share.layers) {
    const AttentionSpec& attention = layer.attention;
    layout.scratch_bytes = std::max(
        layout.scratch_bytes,
        kernels::AttentionScratchBytes(LayoutOf(attention, options), attention.num_heads, rows,
                                       options.max_slices, options.max_context, num_threads));
  }
  layout.scratch = take(layout.scratch_bytes);
  layout.own_attended = is_shared ? take(rows * own_largest.q_width * row_bytes) : layout.normed;
  if (is_shared && largest.normed_heads > 0) {
    layout.own_qk = take(rows * own_largest.q_width * 4);
    layout.whole_qk = take(rows * largest.q_width * 4);
  }
  const int64_t attention_end = end;

  end = shared;
  if (spec.layer_embeddings.width > 0) {
    layout.layer_lookups = take(rows * embedding_width * 4);
    layout.own_projected = is_shared ? take(rows * own_embedding_width * 4) : layout.layer_lookups;
    layout.own_gated =
        is_shared ? take(rows * share.layer_embeddings.width * row_bytes) : layout.normed;
  }
  const int64_t lookups_end = end;

  end = shared;
  if (is_shared && place.is_first_stage() && spec.head.kind == HeadSpec::Kind::kVocabulary) {
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
    if (largest.has_output_gate) layout.shared_gates = take(rows * 4);
    layout.order = take(layout.moe_pairs * 4);
    layout.place = take(layout.moe_pairs * 4);
    layout.row_begin = take((largest.experts + 1) * 4);
    if (largest.has_own_norms) layout.expert_delta = take(rows * spec.hidden_size * 4);
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
  layout.total_bytes = std::max({end, attention_end, lookups_end, logits_end});
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
