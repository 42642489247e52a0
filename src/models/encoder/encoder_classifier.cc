#include "models/encoder/encoder_classifier.h"

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/layer_norm.h"

namespace sluice {

int64_t NumScores(const ModelConfig& config) {
  return config.spec.head.kind == HeadSpec::Kind::kScores ? config.spec.head.num_scores : 0;
}

void TakeTextMeans(ThreadPool& pool, const StepInput& input, int64_t width, float* x) {
  CHECK_LE(input.logit_rows.size(), input.slices.size());
  const auto text_of = [&](int32_t row) {
    const kernels::AttentionSlice* slice = input.slices.data();
    while (row >= slice->first_row + slice->num_tokens) ++slice;
    return slice;
  };
  pool.ParallelFor(width, 16, [&](int64_t begin, int64_t end) {
    // Works in place: result i is written to row i. This is safe because the rows of text i begin
    // at row i or later.
    for (size_t i = 0; i < input.logit_rows.size(); ++i) {
      const kernels::AttentionSlice& text = *text_of(input.logit_rows[i]);
      for (int64_t col = begin; col < end; ++col) {
        double sum = 0;
        for (int64_t row = 0; row < text.num_tokens; ++row)
          sum += x[(text.first_row + row) * width + col];
        x[static_cast<int64_t>(i) * width + col] = static_cast<float>(sum / text.num_tokens);
      }
    }
  });
}

void ScoreTexts(ThreadPool& pool, const ClassifierWeights& weights, float norm_eps, const float* x,
                int64_t rows, int64_t hidden, float* scratch, float* scores) {
  const auto width = static_cast<size_t>(hidden);
  const size_t num_scores = weights.out_bias.size();
  const auto dot = [width](const float* a, const float* b, float bias) {
    double sum = bias;
    for (size_t i = 0; i < width; ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  };
  const bool is_normed = !weights.norm.weight.empty();
  pool.ParallelFor(rows * hidden, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % hidden;
      const double sum = dot(x + i / hidden * hidden, weights.dense.data() + col * hidden,
                             weights.dense_bias[static_cast<size_t>(col)]);
      scratch[i] = static_cast<float>(
          is_normed ? sum / 2 * (1 + std::erf(sum / std::numbers::sqrt2)) : std::tanh(sum));
    }
  });
  if (is_normed) {
    kernels::LayerNorm(pool, scratch, weights.norm.weight.data(), weights.norm.bias.data(),
                       norm_eps, rows, hidden, /*y=*/nullptr, ElementType::kF32);
  }
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    for (size_t n = 0; n < num_scores; ++n) {
      scores[row * num_scores + n] = static_cast<float>(
          dot(scratch + row * width, weights.out.data() + n * width, weights.out_bias[n]));
    }
  }
}

}  // namespace sluice
