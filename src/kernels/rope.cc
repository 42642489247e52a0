#include "kernels/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {
namespace {

void Rotate(float& a, float& b, float cosine, float sine) {
  const float rotated = a * cosine - b * sine;
  b = a * sine + b * cosine;
  a = rotated;
}

}  // namespace

void RopeHalfRow(float* x, int num_heads, int head_dim, int rotary_dim, const float* cos_sin) {
  const int half = rotary_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (int i = 0; i < half; ++i) Rotate(x[i], x[half + i], cos_sin[i], cos_sin[half + i]);
  }
}

void RopeInterleavedRow(float* x, int num_heads, int head_dim, int rotary_dim,
                        const float* cos_sin) {
  const int half = rotary_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (int i = 0; i < half; ++i) Rotate(x[2 * i], x[2 * i + 1], cos_sin[i], cos_sin[half + i]);
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(RopeHalfRow);
SLUICE_VECTOR_KERNEL(RopeInterleavedRow);

namespace {

double Scaled(double frequency, const Llama3RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(scaling.original_max_position);
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  // With equal factors there is no middle band, and their difference, which is a divisor, would be
  // zero.
  if (wavelength > original / scaling.low_freq_factor ||
      scaling.low_freq_factor == scaling.high_freq_factor) {
    return frequency / scaling.factor;
  }
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<float> RopeFrequencies(int head_dim, double theta,
                                   const std::optional<Llama3RopeScaling>& scaling) {
  CHECK(head_dim > 0 && head_dim % 2 == 0, "rope needs an even head_dim, not {}", head_dim);
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / head_dim);
    frequencies[i] = static_cast<float>(scaling ? Scaled(frequency, *scaling) : frequency);
  }
  return frequencies;
}

void RopeTable(ThreadPool& pool, std::span<const int32_t> positions,
               std::span<const float> frequencies, float* cos_sin, float amplitude) {
  const auto half = static_cast<int64_t>(frequencies.size());
  pool.ParallelFor(static_cast<int64_t>(positions.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto position = static_cast<float>(positions[static_cast<size_t>(row)]);
      float* out = cos_sin + row * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const float angle = position * frequencies[static_cast<size_t>(i)];
        out[i] = std::cos(angle) * amplitude;
        out[half + i] = std::sin(angle) * amplitude;
      }
    }
  });
}

void AxialRopeTable(ThreadPool& pool, std::span<const int32_t> positions, int64_t rows,
                    std::span<const float> frequencies, std::span<const int8_t> axes,
                    float* cos_sin, float amplitude) {
  const auto half = std::ssize(frequencies);
  CHECK_EQ(std::ssize(axes), half);
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const out = cos_sin + row * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const auto index = static_cast<size_t>(i);
        const auto position =
            static_cast<float>(positions[static_cast<size_t>(axes[index] * rows + row)]);
        const float angle = position * frequencies[index];
        out[i] = std::cos(angle) * amplitude;
        out[half + i] = std::sin(angle) * amplitude;
      }
    }
  });
}

void ApplyRope(ThreadPool& pool, float* x, int64_t stride, int64_t rows, int num_heads,
               int head_dim, int rotary_dim, RopeStyle style, const float* cos_sin) {
  CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && rotary_dim <= head_dim,
        "rope rotates an even number of the {} elements of a head, not {}", head_dim, rotary_dim);
  const auto& rotate = style == RopeStyle::kHalf ? kRopeHalfRow : kRopeInterleavedRow;
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      rotate(x + row * stride, num_heads, head_dim, rotary_dim, cos_sin + row * rotary_dim);
    }
  });
}

void UndoRope(ThreadPool& pool, float* x, int64_t stride, int64_t rows, int num_heads, int head_dim,
              int rotary_dim, RopeStyle style, const float* cos_sin) {
  constexpr int kMostRotated = 1024;
  CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && rotary_dim <= std::min(head_dim, kMostRotated),
        "rope rotates an even number of the {} elements of a head, up to {}, not {}", head_dim,
        kMostRotated, rotary_dim);
  const auto& rotate = style == RopeStyle::kHalf ? kRopeHalfRow : kRopeInterleavedRow;
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    std::array<float, kMostRotated> back;
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(cos_sin + row * rotary_dim, rotary_dim, back.begin());
      for (int i = rotary_dim / 2; i < rotary_dim; ++i)
        back[static_cast<size_t>(i)] = -back[static_cast<size_t>(i)];
      rotate(x + row * stride, num_heads, head_dim, rotary_dim, back.data());
    }
  });
}

}  // namespace sluice::kernels
