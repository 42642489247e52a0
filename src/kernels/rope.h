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

// Returns the angular frequency of each pair of elements, [head_dim / 2], F32. Source: transformers
// modeling_rope_utils.py (_compute_llama3_parameters); with equal low and high factors there is no
// middle band.
std::vector<float> RopeFrequencies(int head_dim, double theta,
                                   const std::optional<Llama3RopeScaling>& scaling);

// Rotates the first `rotary_dim` elements of `num_heads` heads of each row in place. x: F32, row i
// at x + i * stride, heads contiguous [num_heads, head_dim]; `cos_sin`: the table that RopeTable
// made for these rows, with rotary_dim / 2 frequencies.
void ApplyRope(ThreadPool& pool, float* x, int64_t stride, int64_t rows, int num_heads,
               int head_dim, int rotary_dim, RopeStyle style, const float* cos_sin);

// The inverse of ApplyRope, except for rounding: rotates in the opposite direction.
void UndoRope(ThreadPool& pool, float* x, int64_t stride, int64_t rows, int num_heads, int head_dim,
              int rotary_dim, RopeStyle style, const float* cos_sin);

// Computes cosines and sines of each row's angles, position * frequency, all in F32 and times
// `amplitude`, to cos_sin [rows, 2 * frequencies], first the cosines, then the sines. Positions are
// absolute. Computed once per step and used by every layer.
void RopeTable(ThreadPool& pool, std::span<const int32_t> positions,
               std::span<const float> frequencies, float* cos_sin, float amplitude = 1);

// Like RopeTable, for rows with a position on each of several axes: positions [axes, rows];
// frequency i uses the position on axis axes[i]. If a row's positions are equal on all axes, the
// result is bit-identical to RopeTable's.
void AxialRopeTable(ThreadPool& pool, std::span<const int32_t> positions, int64_t rows,
                    std::span<const float> frequencies, std::span<const int8_t> axes,
                    float* cos_sin, float amplitude = 1);

}  // namespace sluice::kernels
