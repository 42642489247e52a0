// rope: rotary position embedding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace sluice::kernels {

enum class RopeStyle {
  kHalf,         // pairs (x[i], x[i + d/2]): Llama 3, Qwen
  kInterleaved,  // pairs (x[2i], x[2i + 1]): Llama 4
};

// The "llama3" scaling of the base frequencies.
struct Llama3RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position = 8192;
};

// Angular frequency of each pair, [head_dim / 2], float32.
// Source: transformers modeling_rope_utils.py (_compute_llama3_parameters); equal low and high
// factors leave no middle band.
std::vector<float> RopeFrequencies(int head_dim, double theta,
                                   const std::optional<Llama3RopeScaling>& scaling);

// Rotates `num_heads` heads of each row in place. x: F32, row i at x + i * stride, heads dense
// [num_heads, head_dim]; positions: [rows], absolute. Angles are position * frequency in F32; cos
// and sin are taken in F32. `cos_sin` is the table made by RopeTable.
void ApplyRope(ThreadPool& pool, float* x, int64_t stride, int64_t rows, int num_heads,
               int head_dim, RopeStyle style, const float* cos_sin);

// cos and sin for each row: cos_sin [rows, head_dim] F32, first the head_dim / 2 cosines, then the
// sines. Made once a step and used by every layer.
void RopeTable(ThreadPool& pool, std::span<const int32_t> positions,
               std::span<const float> frequencies, float* cos_sin);

}  // namespace sluice::kernels
