#include "kernels/cpu/ops/ops.h"
#include "kernels/state_tokens.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Updates kVectors vectors of columns, whose state stays in L1 from token to token. kDecaysKeys:
// StateTokens::decays_keys.
template <int kVectors, bool kDecaysKeys, typename Lanes>
inline void UpdateColumns(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                          int64_t stride, int64_t first, float* state, Lanes lanes) {
  for (int64_t row = 0; row < tokens.rows; ++row) {
    const float* const q = tokens.q + row * tokens.key_stride;
    const float* const k = tokens.k + row * tokens.key_stride;
    float* const v = tokens.v + row * tokens.value_stride + first;
    const float* const decays = tokens.decay + row * tokens.gate_stride;
    const Floats decay = Set(decays[0]);
    const Floats rate = Set(tokens.rate[row * tokens.gate_stride]);
    Floats writes[kVectors], sums[kVectors];
    for (int j = 0; j < kVectors; ++j) sums[j] = Zero();
    for (int64_t key = 0; corrects && key < key_dim; ++key) {
      const float* const numbers = state + key * stride + first;
      const Floats factor = Set(kDecaysKeys ? decays[key] * k[key] : k[key]);
      for (int j = 0; j < kVectors; ++j)
        sums[j] = MulAdd(Load(numbers + j * kLanes, lanes), factor, sums[j]);
    }
    for (int j = 0; j < kVectors; ++j) {
      const Floats value = Load(v + j * kLanes, lanes);
      writes[j] = Mul(rate, NegMulAdd(kDecaysKeys ? Set(1) : decay, sums[j], value));
      sums[j] = Mul(Set(skip), value);
    }
    for (int64_t key = 0; key < key_dim; ++key) {
      float* const numbers = state + key * stride + first;
      const Floats factor = Set(k[key]), query = Set(q[key]);
      const Floats kept = kDecaysKeys ? Set(decays[key]) : decay;
      for (int j = 0; j < kVectors; ++j) {
        const Floats number =
            MulAdd(factor, writes[j], Mul(kept, Load(numbers + j * kLanes, lanes)));
        Store(numbers + j * kLanes, number, lanes);
        sums[j] = MulAdd(query, number, sums[j]);
      }
    }
    for (int j = 0; j < kVectors; ++j) Store(v + j * kLanes, sums[j], lanes);
  }
}

template <bool kDecaysKeys>
void UpdateAllColumns(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                      int64_t stride, int64_t count, float* state) {
  constexpr int kVectors = 4;
  const auto update = [&]<int kCount>(int64_t first, auto lanes) {
    UpdateColumns<kCount, kDecaysKeys>(tokens, corrects, skip, key_dim, stride, first, state,
                                       lanes);
  };
  int64_t i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes)
    update.template operator()<kVectors>(i, AllLanes());
  for (; i + kLanes <= count; i += kLanes) update.template operator()<1>(i, AllLanes());
  if (i < count) update.template operator()<1>(i, FirstLanes(count - i));
}

}  // namespace

void UpdateStateColumns(const StateTokens& tokens, bool corrects, float skip, int64_t key_dim,
                        int64_t stride, int64_t count, float* state) {
  if (tokens.decays_keys)
    UpdateAllColumns<true>(tokens, corrects, skip, key_dim, stride, count, state);
  else
    UpdateAllColumns<false>(tokens, corrects, skip, key_dim, stride, count, state);
}

void ScaleRowToLength(float* x, int64_t cols, float eps, float factor) {
  Floats sum = Zero();
  ForEachVector(cols, [&](int64_t i, auto lanes) {
    const Floats value = Load(x + i, lanes);
    sum = MulAdd(value, value, sum);
  });
  const Floats scale = Set(factor / __builtin_sqrtf(SumLanes(sum) + eps));
  ForEachVector(
      cols, [&](int64_t i, auto lanes) { Store(x + i, Mul(Load(x + i, lanes), scale), lanes); });
}

}  // namespace sluice::kernels::SLUICE_ISA
