#include "models/dense_layers.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using testing::MakeSafetensors;
using testing::TemporaryFolder;
using testing::TestTensor;
using testing::WriteFile;

std::string F32(const std::vector<float>& numbers) {
  std::string data(numbers.size() * sizeof(float), '\0');
  std::memcpy(data.data(), numbers.data(), data.size());
  return data;
}

class DenseLayersTest : public ::testing::Test {
 protected:
  void Write(const std::vector<TestTensor>& tensors) {
    WriteFile(folder_.path() / "2_Dense/model.safetensors", MakeSafetensors(tensors));
  }
  Result<std::shared_ptr<const DenseLayers>> Load(const DenseModule& module) {
    return DenseLayers::Load(pool_, folder_.path(), {&module, 1}, options_);
  }
  std::string Problem(const DenseModule& module) {
    const auto layers = Load(module);
    return layers ? "" : layers.error().message;
  }
  // Applies the layers to one vector.
  std::vector<float> Apply(const DenseLayers& layers, std::vector<float> x, size_t size) {
    x.resize(static_cast<size_t>(layers.widest()));
    std::vector<float> scratch(x.size());
    const float* result = layers.Apply(pool_, 1, x.data(), scratch.data());
    return {result, result + size};
  }

  TemporaryFolder folder_;
  ThreadPool pool_{2};
  ModelOptions options_;
};

DenseModule Module(int64_t in, int64_t out, bool has_bias, DenseActivation activation) {
  return {"2_Dense", in, out, has_bias, activation};
}

TEST_F(DenseLayersTest, EachActivation) {
  Write({{"linear.weight", "F32", {2, 3}, F32({1, 2, 3, -1, 0, 1})},
         {"linear.bias", "F32", {2}, F32({0.5, -4})}});
  // W x + b = [1.5, -4].
  const std::vector<float> x = {1, -1.5, 1};
  const double a = 1.5;
  const auto gelu = [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::pair<DenseActivation, std::pair<double, double>> cases[] = {
      {DenseActivation::kIdentity, {a, -4}},
      {DenseActivation::kTanh, {std::tanh(a), std::tanh(-4)}},
      {DenseActivation::kRelu, {a, 0}},
      {DenseActivation::kGelu, {gelu(a), gelu(-4)}},
      {DenseActivation::kSigmoid, {sigmoid(a), sigmoid(-4)}},
      {DenseActivation::kSilu, {a * sigmoid(a), -4 * sigmoid(-4)}}};
  for (const auto& [activation, expected] : cases) {
    const auto layers = Load(Module(3, 2, true, activation));
    ASSERT_TRUE(layers) << layers.error().message;
    const std::vector<float> y = Apply(**layers, x, 2);
    EXPECT_NEAR(y[0], expected.first, 1e-6);
    EXPECT_NEAR(y[1], expected.second, 1e-6);
  }
}

TEST_F(DenseLayersTest, ManyVectorsAsOne) {
  constexpr int64_t kIn = 70, kOut = 45;
  std::vector<float> weight, vectors;
  for (int i = 0; i < kIn * kOut; ++i) weight.push_back(std::sin(static_cast<float>(i)));
  for (int i = 0; i < 33 * kIn; ++i) vectors.push_back(std::cos(static_cast<float>(i)));
  Write({{"linear.weight", "F32", {kOut, kIn}, F32(weight)}});
  const auto layers = Load(Module(kIn, kOut, false, DenseActivation::kTanh));
  ASSERT_TRUE(layers) << layers.error().message;
  std::vector<float> rows = vectors, scratch(rows.size());
  const float* together = (*layers)->Apply(pool_, 33, rows.data(), scratch.data());
  for (int64_t row = 0; row < 33; ++row) {
    const auto* x = vectors.data() + row * kIn;
    EXPECT_EQ(Apply(**layers, {x, x + kIn}, kOut),
              std::vector<float>(together + row * kOut, together + (row + 1) * kOut));
  }
}

TEST_F(DenseLayersTest, NamesTheTensorThatDoesNotFit) {
  const DenseModule module = Module(3, 2, true, DenseActivation::kTanh);
  EXPECT_THAT(Problem(module), HasSubstr("2_Dense/model.safetensors"));
  const TestTensor weight{"linear.weight", "F32", {2, 3}, F32({1, 2, 3, 4, 5, 6})};
  Write({{"linear.weight", "F32", {3, 2}, weight.data}});
  EXPECT_THAT(Problem(module), HasSubstr("tensor 'linear.weight': expected F32, F16 or BF16 of "
                                         "shape [2, 3], found F32 of shape [3, 2]"));
  Write({weight});
  EXPECT_THAT(Problem(module), HasSubstr("'linear.bias': expected F32, F16 or BF16 of shape [2], "
                                         "found none"));
  Write({{"linear.bias", "I8", {2}, "ab"}, weight});
  EXPECT_THAT(Problem(module), HasSubstr("found I8 of shape [2]"));
  Write({{"linear.bias", "F32", {2}, F32({0, std::numeric_limits<float>::infinity()})}, weight});
  EXPECT_THAT(Problem(module), HasSubstr("'linear.bias' contains NaN or infinity"));
  EXPECT_THAT(Problem(Module(3, 2, false, DenseActivation::kTanh)),
              HasSubstr("'linear.bias': expected none"));
  options_.allow_nonfinite = true;
  EXPECT_EQ(Problem(module), "");
  options_.load_format = ModelOptions::LoadFormat::kDummy;
  EXPECT_EQ(Problem(Module(100, 2, true, DenseActivation::kTanh)), "");
}

}  // namespace
}  // namespace sluice
