#include "models/workspace.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr int64_t kAlignment = 64;
// The MLP's intermediates are the widest arrays. Going through in parts bounds them; at this many
// rows a pass over the weights is long limited by arithmetic.
constexpr int64_t kMlpRows = 768;

int64_t BytesOf(ElementType type) {
  return BitsPerElement(type) / 8;
}

}  // namespace

kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options) {
  const AttentionSpec& attention = spec.layers.front().attention;
  return {.num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.head_dim,
          .block_size = options.block_size,
          .type = options.kv_type};
}

WorkspaceLayout WorkspaceLayout::For(const DecoderSpec& spec, const ModelOptions& options,
                                     int num_threads) {
  const AttentionSpec& attention = spec.layers.front().attention;
  const int64_t intermediate = spec.layers.front().mlp.intermediate_size;
  const int64_t rows = options.max_rows;
  const int64_t compute_bytes = BytesOf(options.compute_type);
  WorkspaceLayout layout;
  int64_t end = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t offset = end;
    end = (end + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  };
  layout.residual = take(rows * spec.hidden_size * 4);
  layout.delta = take(rows * spec.hidden_size * 4);
  layout.normed = take(rows * std::max(spec.hidden_size, attention.q_width()) * compute_bytes);
  layout.cos_sin = take(rows * attention.head_dim * 4);

  const int64_t shared = end;
  layout.qkv = take(rows * attention.qkv_width() * 4);
  layout.scratch_bytes =
      kernels::AttentionScratchBytes(KvLayoutOf(spec, options), attention.num_heads, rows,
                                     options.max_slices, options.max_context, num_threads);
  layout.scratch = take(layout.scratch_bytes);
  const int64_t attention_end = end;

  end = shared;
  layout.mlp_rows = std::min(rows, kMlpRows);
  layout.gate_up = take(layout.mlp_rows * 2 * intermediate * 4);
  layout.activated = take(layout.mlp_rows * intermediate * compute_bytes);
  layout.total_bytes = std::max(end, attention_end);
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
