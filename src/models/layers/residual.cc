#include "models/layers/residual.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

constexpr int64_t kGrain = 4096;

// F32 numbers in the type that the next product reads.
void Convert(ThreadPool& pool, const float* x, int64_t count, void* y, ElementType type) {
  pool.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    if (type == ElementType::kF32) {
      std::memcpy(static_cast<float*>(y) + begin, x + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
      return;
    }
    auto* out = static_cast<BFloat16*>(y);
    for (int64_t i = begin; i < end; ++i) out[i] = ToBFloat16(x[i]);
  });
}

}  // namespace

void Embed(ThreadPool& pool, const DecoderSpec& spec, const kernels::PackedMatrix& table,
           std::span<const int32_t> tokens, float* out) {
  kernels::Embedding(pool, table, tokens, out);
  const float scale = spec.embedding_scale;
  if (scale == 1) return;
  pool.ParallelFor(static_cast<int64_t>(tokens.size()) * spec.hidden_size, kGrain,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) out[i] *= scale;
                   });
}

void FillRopeTables(const Step& step, const DecoderSpec& spec) {
  const int64_t table_size = static_cast<int64_t>(step.input.positions.size()) * step.rope_width;
  float* cos_sin = step.workspace.cos_sin();
  for (const std::vector<float>& frequencies : spec.rope_tables) {
    const float amplitude = &frequencies == spec.rope_tables.data() ? spec.rope_amplitude : 1;
    kernels::RopeTable(step.pool, step.input.positions, frequencies, cos_sin, amplitude);
    cos_sin += table_size;
  }
}

void EnterSublayer(const Step& step, const std::vector<float>& norm, bool add, int64_t rows,
                   ElementType type) {
  const int64_t cols = step.hidden_size;
  float* residual = step.workspace.residual();
  float* delta = step.workspace.delta();
  void* normed = step.workspace.normed();
  if (norm.empty()) {
    if (add) kernels::ResidualAdd(step.pool, residual, delta, rows * cols);
    Convert(step.pool, residual, rows * cols, normed, type);
  } else if (add) {
    kernels::AddRmsNorm(step.pool, residual, delta, norm.data(), step.norm_eps, rows, cols, normed,
                        type);
  } else {
    kernels::RmsNorm(step.pool, residual, cols, norm.data(), step.norm_eps, rows, cols, normed,
                     type);
  }
}

void LeaveSublayer(const Step& step, const std::vector<float>& norm, int64_t rows) {
  float* delta = step.workspace.delta();
  if (!norm.empty()) {
    kernels::HeadRmsNorm(step.pool, delta, step.hidden_size, norm.data(), step.norm_eps, rows, 1,
                         static_cast<int>(step.hidden_size));
  }
  const float scale = step.residual_scale;
  if (scale == 1) return;
  step.pool.ParallelFor(rows * step.hidden_size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) delta[i] *= scale;
  });
}

void CopyColumns(ThreadPool& pool, const float* from, int64_t from_stride, int64_t width,
                 int64_t rows, float* to, int64_t to_stride) {
  pool.ParallelFor(rows, /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::copy_n(from + row * from_stride, width, to + row * to_stride);
  });
}

bool ChangesLogits(const DecoderSpec& spec) {
  return spec.logit_scale != 1 || spec.logit_soft_cap != 0;
}

void FinishLogits(ThreadPool& pool, const DecoderSpec& spec, float* logits, int64_t count) {
  if (!ChangesLogits(spec)) return;
  const float scale = spec.logit_scale, cap = spec.logit_soft_cap;
  pool.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      logits[i] *= scale;
      if (cap > 0) logits[i] = cap * std::tanh(logits[i] / cap);
    }
  });
}

}  // namespace sluice
