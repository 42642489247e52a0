// The peak performance of this machine, and the work per token of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "base/attention_span.h"
#include "models/model_config.h"

namespace sluice::cli {

// Measured in about a second with `num_threads` threads. 0 if the CPU lacks the instructions.
struct MachineLimits {
  double read_bytes_per_second = 0;
  double avx512_bf16_flops_per_second = 0;  // measured with dot products of AVX-512
  double amx_bf16_flops_per_second = 0;
  double neon_bf16_flops_per_second = 0;  // measured with matrix products of NEON
  double f32_flops_per_second = 0;

  // The highest rate at which the CPU multiplies BF16 numbers: by BF16 instructions, or by FP32
  // instructions if those are faster or there are no BF16 ones.
  double bf16_flops_per_second() const;
};
MachineLimits MeasureLimits(int num_threads);

// The floating-point operations of a model, counted operator by operator (models/program/cost.h).
// Does not count the scores by which an indexer chooses positions, nor attention to compressed
// entries (CompressedSpec), only to the window of tokens.
struct ModelWork {
  // Attention of all layers that see the same positions.
  struct Attention {
    AttentionSpan span;
    int64_t most_chosen = 0;          // maximum number of positions that are chosen; 0: all
    int64_t position_operations = 0;  // per token and position that it attends to
  };

  int64_t row_operations = 0;   // per token, in all layers, without `attention`
  int64_t head_operations = 0;  // per token whose logits are computed
  std::vector<Attention> attention;
};
// Returns the work of a decoder; zeros for a model without a decoder.
ModelWork WorkOf(const ModelConfig& config);
// Floating-point operations for a prompt of `tokens` tokens and the logits of its last token.
double PrefillFlops(const ModelWork& work, int64_t tokens);

}  // namespace sluice::cli
