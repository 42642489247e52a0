// The logistic function.
#pragma once

#include <cmath>

namespace sluice::kernels {

inline float Sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

}  // namespace sluice::kernels
