// The expected results of the RoPE of some elements of a head (TailRope).
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/checks/comparison.h"
#include "kernels/cuda/checks/test_numbers.h"

namespace sluice::checks {

struct TailShape {
  int dim = 0;
  bool rotates = true, interleaved = false;
};

// Returns cosines and sines of a RoPE. They are not normalized, so that the use of a wrong one is
// detected.
inline std::vector<float> TailCosSin(const TailShape& rope, int64_t rows) {
  return rope.rotates ? TestNumbers(41).Normals(rows * rope.dim) : std::vector<float>();
}

// A rotated number and the bound of its error. `x`: the elements that are rotated.
struct RotatedNumber {
  double value = 0, error = 0;
};
inline RotatedNumber RotateTail(const TailShape& rope, const std::vector<float>& cos_sin,
                                int64_t row, const float* x, int index) {
  if (!rope.rotates) return {x[index], 0};
  const int half = rope.dim / 2;
  const int pair = rope.interleaved ? index / 2 : index % half;
  const bool is_second = rope.interleaved ? index % 2 == 1 : index >= half;
  const double a = x[rope.interleaved ? 2 * pair : pair];
  const double b = x[rope.interleaved ? 2 * pair + 1 : pair + half];
  const double cosine = cos_sin[static_cast<size_t>(row * rope.dim + pair)];
  const double sine = cos_sin[static_cast<size_t>(row * rope.dim + half + pair)];
  const double value = is_second ? a * sine + b * cosine : a * cosine - b * sine;
  const double size = is_second ? std::abs(a * sine) + std::abs(b * cosine)
                                : std::abs(a * cosine) + std::abs(b * sine);
  return {value, size * Gamma(2)};
}

// Describes the RoPE in a case's shape.
inline std::string TailText(const TailShape& rope) {
  if (rope.dim == 0) return "";
  return fmt::format(", {} {}", rope.dim,
                     !rope.rotates      ? "as they are"
                     : rope.interleaved ? "rotated, interleaved"
                                        : "rotated");
}

}  // namespace sluice::checks
