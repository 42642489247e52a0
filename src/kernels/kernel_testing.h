// For the kernels' tests: a fixture that runs for every available instruction set, and random
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

// Fixture of tests that run once for each available instruction set.
class KernelTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { SelectIsa(GetParam()); }
  void TearDown() override { ASSERT_TRUE(SelectIsa("auto").has_value()); }
};

inline std::string IsaTestName(const ::testing::TestParamInfo<Isa>& info) {
  return std::string(IsaName(info.param));
}

#define INSTANTIATE_KERNEL_TEST(Suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, ::testing::ValuesIn(AvailableIsas()), IsaTestName)

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

// Returns the tolerance for a value that had an error of `error` before it was rounded to BF16.
inline float Bf16Tolerance(float expected, float error) {
  return std::abs(expected) * 0x1p-8f + error;
}

}  // namespace sluice::kernels
