#include <cmath>

#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {

int64_t ArgMax(const float* x, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  }
  return best < 0 ? 0 : best;
}

float Largest(const float* x, int64_t count) {
  return x[ArgMax(x, count)];
}

double SumExp(const float* x, int64_t count, float shift) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - shift);
  return sum;
}

int64_t CountGreater(const float* x, int64_t count, float value) {
  int64_t greater = 0;
  for (int64_t i = 0; i < count; ++i) greater += x[i] > value;
  return greater;
}

}  // namespace sluice::kernels::reference
