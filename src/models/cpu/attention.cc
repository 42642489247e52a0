// Attention on the CPU: norms of q, k and v, RoPE, temperature, appending to the cache, and
// attention itself.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bidirectional_attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"
#include "models/cpu/walk.h"
#include "tensor/bfloat16.h"

namespace sluice {

kernels::KvCacheView CpuWalk::CacheOf(int64_t layer, float k_scale, float v_scale) const {
  kernels::KvCacheView view = step_.cache->layer(layer);
  view.k_scale = k_scale;
  view.v_scale = v_scale;
  return view;
}

std::span<const kernels::AttentionSlice> CpuWalk::SlicesOf(int64_t layer) const {
  return step_.input.SlicesOf(step_.cache->group(layer));
}

// Multiplies q of every row by the factor of TemperatureTuning. Source: transformers'
// Llama4TextAttention, and compute_attention_scaling of modeling_beam.py, in F32.
void CpuWalk::TuneTemperature(const AttentionSpec& spec, float* q, int64_t stride) const {
  const auto floor_scale = static_cast<float>(spec.temperature_tuning->floor_scale);
  const auto attn_scale = static_cast<float>(spec.temperature_tuning->attn_scale);
  const auto first = static_cast<float>(spec.temperature_tuning->first);
  const auto power = static_cast<float>(spec.temperature_tuning->power);
  pool_.ParallelFor(rows_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto position = static_cast<float>(step_.input.positions[static_cast<size_t>(row)]);
      const float factor =
          power != 0 ? std::exp(power * std::log1p((position + first) / floor_scale))
                     : std::log1p(std::floor((position + first) / floor_scale)) * attn_scale + 1.0f;
      float* const values = q + row * stride;
      for (int64_t i = 0; i < spec.q_width(); ++i) values[i] *= factor;
    }
  });
}

// Applies one norm over all heads of q, and one over all heads of k. Because this rank has only
// some heads, every rank gathers whole rows, normalizes them, and keeps its own columns. `q`: rows
// of this rank's q, k and v.
void CpuWalk::NormWholeRows(const program::RopeAppend& op, const AttentionSpec& spec,
                            float* q) const {
  const int64_t stride = spec.row_width();
  float* const own = F32At(op.own_qk, 0);
  float* const whole = F32At(op.whole_qk, 0);
  const auto norm = [&](program::VectorId id, const RowRange& columns, float* x) {
    const auto width = static_cast<int64_t>(VectorOf(id).size());
    ForEachWeight(id, rows_, [&](const auto& weight, int64_t begin, int64_t count) {
      kernels::HeadRmsNorm(pool_, whole + begin * width, width, weight.data(), program_.norm_eps,
                           count, /*num_heads=*/1, static_cast<int>(width));
    });
    CopyColumnsOf(whole + columns.begin, width, columns.size(), rows_, x, stride);
  };
  ranks_->EnterLayer(op.model_layer);
  CopyColumnsOf(q, stride, spec.q_width(), rows_, own, spec.q_width());
  ranks_->GatherQueries(pool_, rows_, own, whole);
  norm(op.q_norm, ranks_->q_columns(), q);
  float* const k = q + spec.q_width();
  const int64_t given = ranks_->given_k_columns().size();
  CopyColumnsOf(k, stride, given, rows_, own, given);
  ranks_->GatherKeys(pool_, rows_, own, whole);
  norm(op.k_norm, ranks_->k_columns(), k);
}

// Norms each head separately, or all heads of q as one head and all heads of k as another.
void CpuWalk::NormQk(const program::RopeAppend& op, const AttentionSpec& spec, float* q) const {
  const bool whole = spec.qk_norm == QkNorm::kWholeWidth;
  if (whole && ranks_ != nullptr) return NormWholeRows(op, spec, q);
  const int64_t stride = spec.row_width();
  const auto norm = [&](float* x, program::VectorId id, int num_heads) {
    ForEachWeight(id, rows_, [&](const auto& weight, int64_t begin, int64_t count) {
      kernels::HeadRmsNorm(pool_, x + begin * stride, stride, weight.data(), program_.norm_eps,
                           count, whole ? 1 : num_heads, spec.head_dim * (whole ? num_heads : 1));
    });
  };
  norm(q, op.q_norm, spec.num_heads);
  if (spec.has_own_kv()) norm(q + spec.q_width(), op.k_norm, spec.num_kv_heads);
}

// Computes v of every row: copies k as projected if values are keys, and applies v's norm.
void CpuWalk::MakeValues(const program::RopeAppend& op, const AttentionSpec& spec, float* k) const {
  float* const v = k + spec.kv_width();
  if (spec.values_are_keys)
    CopyColumnsOf(k, spec.row_width(), spec.kv_width(), rows_, v, spec.row_width());
  if (spec.norms_values) {
    kernels::HeadRmsNorm(pool_, v, spec.row_width(), Vector(op.v_norm), program_.norm_eps, rows_,
                         spec.num_kv_heads, spec.head_dim);
  }
}

void CpuWalk::operator()(const program::RopeAppend& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const int64_t width = spec.row_width();
  float* const q = F32At(op.x, width) + spec.gate_width();
  float* const k = q + spec.q_width();
  float* const v = k + spec.kv_width();
  if (spec.has_own_kv()) MakeValues(op, spec, k);
  if (spec.qk_norm == QkNorm::kBeforeRope || spec.qk_norm == QkNorm::kWholeWidth)
    NormQk(op, spec, q);
  if (spec.rope) {
    // In a row, the heads of k follow those of q.
    const int num_heads = spec.num_heads + (spec.has_own_kv() ? spec.num_kv_heads : 0);
    kernels::ApplyRope(pool_, q, width, rows_, num_heads, spec.head_dim, spec.rotated(),
                       spec.rope_style, F32At(op.cos_sin, spec.rotated()));
  }
  if (spec.qk_norm == QkNorm::kAfterRope || spec.qk_norm == QkNorm::kAfterRopeUnweighted)
    NormQk(op, spec, q);
  if (spec.temperature_tuning) TuneTemperature(spec, q, width);
  if (!spec.has_own_kv()) return;
  if (step_.observer != nullptr) {
    const auto seen = [&](const float* values) {
      return kernels::Activations{.data = values,
                                  .type = ElementType::kF32,
                                  .rows = rows_,
                                  .cols = spec.kv_width(),
                                  .stride = width};
    };
    step_.observer->OnKeysAndValues(seen(k), seen(v));
  }
  kernels::AppendKv(pool_, CacheOf(op.cache_layer, op.k_scale, op.v_scale),
                    SlicesOf(op.cache_layer), k, v, width);
}

void CpuWalk::operator()(const program::AppendReceived& op) {
  const float* const k = F32At(op.keys);
  kernels::AppendKv(pool_, CacheOf(op.cache_layer, op.k_scale, op.v_scale),
                    SlicesOf(op.cache_layer), k, k + op.width, op.keys.stride);
}

void CpuWalk::operator()(const program::Attend& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const kernels::KvCacheView cache = CacheOf(op.cache_layer, op.k_scale, op.v_scale);
  const int64_t stride = spec.latent ? spec.q_width() : spec.row_width();
  float* const gates = F32At(op.q, stride);
  const float* const q = gates + spec.gate_width();
  std::byte* const out =
      At(op.out, int64_t{spec.num_heads} * spec.value_dim() * BitsPerElement(op.type) / 8);
  const std::span scratch(At(op.scratch, 0), static_cast<size_t>(op.scratch_bytes));
  const std::span<const kernels::AttentionSlice> slices = SlicesOf(op.cache_layer);
  // BF16 is not used if the next layer rounds its inputs to integers (op.allows_bf16), because an
  // error of BF16 size would change the rounding of many of them. Nor is it used if scores are not
  // scaled down, because the softmax would amplify the error.
  const bool scales_down = spec.softmax_scale() * std::sqrt(static_cast<float>(spec.head_dim)) < 2;
  if (op.is_bidirectional) {
    return kernels::BidirectionalAttention(pool_, cache, slices, op.reach, q, stride,
                                           spec.num_heads, spec.softmax_scale(), out, op.type,
                                           scratch, op.allows_bf16 && scales_down);
  }
  const kernels::AttentionScores scores{.scale = spec.softmax_scale(),
                                        .soft_cap = spec.soft_cap,
                                        .sinks = Vector(op.sinks),
                                        .bf16_products = op.allows_bf16 && scales_down,
                                        .sees_spans = spec.sees_images};
  kernels::ChosenPositions chosen;
  if (op.counts != program::kNone) {
    kernels::KvCacheView rows = cache;
    rows.layout = cache.layout.Rows();
    chosen = {.positions = I32At(op.chosen, op.most_chosen),
              .stride = op.most_chosen,
              .most = op.most_chosen,
              .counts = I32At(op.counts, 1)};
    return kernels::Attention(pool_, rows, slices, spec.span, q, stride, spec.num_heads, scores,
                              out, op.type, scratch, chosen);
  }
  if (spec.block_indexer) {
    chosen = ChosenBlocksOf(op, *spec.block_indexer, slices);
  } else if (op.chosen != program::kNone) {
    const int top_k = spec.latent->indexer->top_k;
    chosen = {.positions = I32At(op.chosen, top_k), .stride = top_k, .most = top_k};
  }
  kernels::Attention(pool_, cache, slices, spec.span, q, stride, spec.num_heads, scores, out,
                     op.type, scratch, chosen);
  if (spec.gate != AttentionGate::kInQueries) return;
  kernels::SigmoidGate(pool_, gates, stride, rows_, spec.q_width(), out, op.type);
}

void CpuWalk::operator()(const program::GateAttended& op) {
  const float* const gates = F32At(op.gates, op.num_gates);
  std::byte* const x = At(op.x, op.width * BitsPerElement(op.type) / 8);
  const int64_t of_gate = op.width / op.num_gates;
  const float* const bias = Vector(op.bias);
  const int64_t of_bias = bias == nullptr ? 1 : op.num_gates / std::ssize(VectorOf(op.bias));
  const auto factor_of = [&](float gate, int64_t index) {
    if (bias != nullptr) gate += bias[index / of_bias];
    if (!op.is_softplus) return 1.0f / (1.0f + std::exp(-gate));
    return gate > 20 ? gate : std::log1p(std::exp(gate));
  };
  constexpr int64_t kGrain = 1024;
  pool_.ParallelFor(rows_ * op.num_gates, std::max<int64_t>(1, kGrain / of_gate),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t gate = begin; gate < end; ++gate) {
                        const float factor = factor_of(gates[gate], gate % op.num_gates);
                        for (int64_t i = gate * of_gate; i < (gate + 1) * of_gate; ++i) {
                          if (op.type == ElementType::kF32) {
                            reinterpret_cast<float*>(x)[i] *= factor;
                          } else {
                            auto& value = reinterpret_cast<BFloat16*>(x)[i];
                            value = ToBFloat16(ToFloat(value) * factor);
                          }
                        }
                      }
                    });
}

void CpuWalk::operator()(const program::LimitRows& op) {
  float* const x = F32At(op.x);
  pool_.ParallelFor(rows_, /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const numbers = x + row * op.x.stride;
      for (int64_t i = 0; i < op.width; ++i)
        numbers[i] = std::clamp(numbers[i], -op.limit, op.limit);
    }
  });
}

void CpuWalk::operator()(const program::NormHeads& op) {
  float* const x = F32At(op.x);
  const float* const weight = Vector(op.weight);
  const float* const bias = Vector(op.bias);
  const int64_t width = op.width;
  pool_.ParallelFor(rows_, /*grain=*/4, [&](int64_t begin, int64_t end) {
    for (int64_t place = begin * op.heads; place < end * op.heads; ++place) {
      const int64_t head = place % op.heads;
      float* const numbers = x + place / op.heads * op.x.stride + head * width;
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < width; ++i) sum += numbers[i];
      const double mean = sum / static_cast<double>(width);
      for (int64_t i = 0; i < width; ++i) squares += (numbers[i] - mean) * (numbers[i] - mean);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + program_.norm_eps);
      const int64_t first = op.has_each ? head * width : 0;
      for (int64_t i = 0; i < width; ++i) {
        const auto normed = static_cast<float>((numbers[i] - mean) * factor);
        numbers[i] = normed * weight[first + i] + (bias == nullptr ? 0.0f : bias[first + i]);
      }
    }
  });
}

void CpuWalk::operator()(const program::CopyHeads& op) {
  const int64_t number = BitsPerElement(op.type) / 8;
  const std::byte* const from = At(op.from, number);
  std::byte* const to = At(op.to, number);
  const auto from_bytes = static_cast<size_t>(op.from_width * number);
  const auto to_bytes = static_cast<size_t>(op.to_width * number);
  const size_t copied = std::min(from_bytes, to_bytes);
  pool_.ParallelFor(rows_, /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* const x = from + row * op.from.stride * number;
      std::byte* const y = to + row * op.to.stride * number;
      // Starts at the last head: a head that becomes wider in place must not overwrite a head that
      // has not been moved yet.
      for (auto head = static_cast<size_t>(op.heads); head-- > 0;) {
        std::memmove(y + head * to_bytes, x + head * from_bytes, copied);
        std::memset(y + head * to_bytes + copied, 0, to_bytes - copied);
      }
    }
  });
}

void CpuWalk::operator()(const program::NormTo& op) {
  const int64_t bytes = op.width * BitsPerElement(op.type) / 8;
  const float* const x = F32At(op.x, op.width);
  std::byte* const out = At(op.out, bytes);
  ForEachWeight(op.weight, CountOf(op.x), [&](const auto& weight, int64_t begin, int64_t count) {
    kernels::RmsNorm(pool_, x + begin * op.width, op.width, weight.data(), program_.norm_eps, count,
                     op.width, out + begin * bytes, op.type);
  });
}

}  // namespace sluice
