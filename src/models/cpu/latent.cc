// Latent attention, except attention itself.
#include "kernels/attention.h"
#include "kernels/layer_norm.h"
#include "kernels/linear_products.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/select_positions.h"
#include "models/cpu/walk.h"

namespace sluice {

void CpuWalk::operator()(const program::LatentAppend& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const LatentSpec& latent = *spec.latent;
  const int64_t width = spec.first_width();
  float* const x = F32At(op.x, width);
  float* const key = x + spec.latent_q_width();
  if (op.q != program::kNone) {
    const int64_t q_bytes = latent.q_rank * BitsPerElement(op.q_type) / 8;
    std::byte* const q = At(op.q, q_bytes);
    ForEachWeight(op.q_norm, rows_, [&](const auto& weight, int64_t begin, int64_t count) {
      kernels::RmsNorm(pool_, x + begin * width, width, weight.data(), latent.norm_eps, count,
                       latent.q_rank, q + begin * q_bytes, op.q_type);
    });
  }
  ForEachWeight(op.k_norm, rows_, [&](const auto& weight, int64_t begin, int64_t count) {
    kernels::HeadRmsNorm(pool_, key + begin * width, width, weight.data(), latent.norm_eps, count,
                         /*num_heads=*/1, latent.normed_dim());
  });
  if (op.cos_sin != program::kNone) {
    kernels::ApplyRope(pool_, key + latent.kv_rank, width, rows_, /*num_heads=*/1, latent.rope_dim,
                       latent.rope_dim, spec.rope_style, F32At(op.cos_sin, latent.rope_dim));
  }
  if (step_.observer != nullptr) {
    const kernels::Activations seen{.data = key,
                                    .type = ElementType::kF32,
                                    .rows = rows_,
                                    .cols = spec.kv_width(),
                                    .stride = width};
    step_.observer->OnKeysAndValues(seen, seen);
  }
  kernels::AppendKv(pool_, CacheOf(op.cache_layer, op.k_scale, op.k_scale),
                    SlicesOf(op.cache_layer), key, nullptr, width);
}

void CpuWalk::operator()(const program::ChoosePositions& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const LatentSpec& latent = *spec.latent;
  const IndexerSpec& indexer = *latent.indexer;
  const int64_t dim = indexer.head_dim, width = indexer.num_heads * dim;
  float* const q = F32At(op.q, width);
  float* const k = F32At(op.k, dim);
  kernels::LayerNorm(pool_, k, Vector(op.k_norm), Vector(op.k_norm_bias), indexer.norm_eps, rows_,
                     dim, nullptr, ElementType::kF32);
  const auto rotate = [&](float* x, int heads) {
    if (op.cos_sin == program::kNone) return;
    kernels::ApplyRope(pool_, x, heads * dim, rows_, heads, indexer.head_dim, latent.rope_dim,
                       indexer.rope_style, F32At(op.cos_sin, latent.rope_dim));
  };
  rotate(q, indexer.num_heads);
  rotate(k, 1);
  const kernels::KvCacheView cache = CacheOf(op.cache_layer, op.k_scale, op.k_scale);
  const std::span<const kernels::AttentionSlice> slices = SlicesOf(op.cache_layer);
  kernels::AppendSide(pool_, cache, slices, k, dim);
  kernels::SelectPositions(
      pool_, cache, slices,
      {.q = q, .weights = F32At(op.weights, indexer.num_heads), .num_heads = indexer.num_heads},
      indexer.top_k, I32At(op.chosen, indexer.top_k),
      {At(op.scratch, 0), static_cast<size_t>(op.scratch_bytes)});
}

// Multiplies each head's columns of x by its matrix, in F32. Performance matters little: there are
// few heads, and their matrices are small compared to the layer's other matrices.
void CpuWalk::MultiplyHeads(const ExpertWeights& weights, const float* x, int64_t x_width,
                            int64_t x_stride, float* y, int64_t y_width, int64_t y_stride) const {
  const kernels::PackedMatrix& first = weights.matrices.front();
  kernels::LinearProducts products(pool_, rows_, first.cols);
  for (size_t head = 0; head < weights.matrices.size(); ++head) {
    const auto index = static_cast<int64_t>(head);
    const kernels::Activations rows{.data = x + index * x_width,
                                    .type = ElementType::kF32,
                                    .rows = rows_,
                                    .cols = first.cols,
                                    .stride = x_stride};
    products.Add(weights.matrices[head], rows, y + index * y_width, y_stride, nullptr);
  }
  products.Run();
}

void CpuWalk::operator()(const program::AbsorbQueries& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const LatentSpec& latent = *spec.latent;
  const int64_t width = spec.q_width();
  const float* const q = F32At(op.q);
  float* const out = F32At(op.out, width);
  MultiplyHeads(*program_.experts[static_cast<size_t>(op.key_up)], q, latent.qk_dim(), op.q.stride,
                out, spec.head_dim, width);
  pool_.ParallelFor(rows_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < spec.num_heads; ++head) {
        std::copy_n(q + row * op.q.stride + head * latent.qk_dim() + latent.nope_dim,
                    latent.rope_dim, out + row * width + head * spec.head_dim + latent.kv_rank);
      }
    }
  });
  // Rotates the last elements of each head.
  if (op.cos_sin != program::kNone) {
    kernels::ApplyRope(pool_, out + latent.kv_rank, width, rows_, spec.num_heads, spec.head_dim,
                       latent.rope_dim, spec.rope_style, F32At(op.cos_sin, latent.rope_dim));
  }
  if (spec.temperature_tuning) TuneTemperature(spec, out, width);
}

void CpuWalk::operator()(const program::ExpandValues& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const LatentSpec& latent = *spec.latent;
  const int64_t width = spec.output_width(), x_width = int64_t{spec.num_heads} * latent.kv_rank;
  float* const y = F32At(op.y, width);
  MultiplyHeads(*program_.experts[static_cast<size_t>(op.value_up)], F32At(op.x, x_width),
                latent.kv_rank, x_width, y, latent.value_dim, width);
  if (op.out == program::kNone) return;
  auto* const out = reinterpret_cast<BFloat16*>(At(op.out, width * int64_t{sizeof(BFloat16)}));
  pool_.ParallelFor(rows_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * width; i < end * width; ++i) out[i] = ToBFloat16(y[i]);
  });
}

}  // namespace sluice
