// The peak performance of this machine, and the work per token of a model.
#pragma once

#include <cstdint>

#include "models/model_config.h"

namespace sluice::cli {

// Measured in about a second with `num_threads` threads. 0 if the CPU lacks the instructions.
struct MachineLimits {
  double read_bytes_per_second = 0;
  double avx512_bf16_flops_per_second = 0;  // dot products of AVX-512
  double amx_bf16_flops_per_second = 0;
  double neon_bf16_flops_per_second = 0;  // matrix products of NEON
  double f32_flops_per_second = 0;

  // The highest rate at which the CPU multiplies BF16 numbers: by BF16 instructions, or by those of
  // FP32 where they are faster or the only ones.
  double bf16_flops_per_second() const;
};
MachineLimits MeasureLimits(int num_threads);

// The arithmetic of a model, independent of the implementation.
struct ModelWork {
  int64_t matrix_weights =
      0;  // number of weights that one token uses in all layers, with only the chosen experts
  int64_t logit_weights = 0;  // number of weights of the output matrix
};
ModelWork WorkOf(const ModelConfig& config);
// Floating-point operations for a prompt of `tokens` tokens and the logits of its last token.
double PrefillFlops(const ModelConfig& config, const ModelWork& work, int64_t tokens);

}  // namespace sluice::cli
