// What this machine can do at most, and what a model needs of it for a token.
#pragma once

#include <cstdint>

#include "models/model_config.h"

namespace sluice::cli {

// Measured, in about a second, with as many threads as given. 0 where the CPU lacks the
// instructions.
struct MachineLimits {
  double read_bytes_per_second = 0;
  double avx512_bf16_flops_per_second = 0;  // dot products of AVX-512
  double amx_bf16_flops_per_second = 0;
  double f32_flops_per_second = 0;

  // Of the fastest unit for BF16 there is; FP32 where there is none.
  double bf16_flops_per_second() const;
};
MachineLimits MeasureLimits(int num_threads);

// Arithmetic and memory traffic that no implementation avoids.
struct ModelWork {
  int64_t matrix_weights = 0;  // that one token meets in all layers: of experts, those chosen
  int64_t logit_weights = 0;   // of the output matrix
};
ModelWork WorkOf(const ModelConfig& config);
// Operations of `tokens` prompt tokens of one sequence, with the logits of the last one.
double PrefillFlops(const ModelConfig& config, const ModelWork& work, int64_t tokens);

}  // namespace sluice::cli
