// What the tests of the kernels share: every implementation this machine can run, and random
// numbers.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/dispatch.h"
#include "tensor/bfloat16.h"

namespace sluice::kernels {

// A test suite that runs once for each implementation that this machine has.
class KernelTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { SelectIsa(GetParam()); }
  void TearDown() override { ASSERT_TRUE(SelectIsa("auto").has_value()); }
};

inline std::string IsaTestName(const testing::TestParamInfo<Isa>& info) {
  return std::string(IsaName(info.param));
}

#define INSTANTIATE_KERNEL_TEST(Suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, testing::ValuesIn(AvailableIsas()), IsaTestName)

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  std::vector<float> Normal(int64_t count, float deviation = 1.0f) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(engine_);
    return values;
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

inline std::vector<BFloat16> ToBFloat16(const std::vector<float>& values) {
  std::vector<BFloat16> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = sluice::ToBFloat16(values[i]);
  return result;
}

inline std::vector<float> Rounded(const std::vector<float>& values) {
  std::vector<float> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = ToFloat(sluice::ToBFloat16(values[i]));
  return result;
}

// A rounding to BF16 of values that were off by `error` may land one step further.
inline float Bf16Tolerance(float expected, float error) {
  return std::abs(expected) * 0x1p-8f + error;
}

}  // namespace sluice::kernels
