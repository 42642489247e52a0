#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SamplingTest : public KernelTest {};

TEST_P(SamplingTest, ArgMaxTakesTheFirstOfEqualsAndSkipsNan) {
  EXPECT_EQ(ArgMax(std::vector<float>{3.0f}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -2.0f, -1.0f, -1.0f, kNan}), 2);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInfinity, -kInfinity}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -kInfinity}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, kNan}), 0);
  Random random(1);
  for (int64_t count : {1, 2, 15, 16, 17, 33, 100, 1000, 128256}) {
    std::vector<float> x = random.Normal(count);
    for (float& value : x) value = std::round(value * 4);  // Many equals.
    EXPECT_EQ(ArgMax(x), std::max_element(x.begin(), x.end()) - x.begin()) << count;
    const auto place = static_cast<size_t>(random.Integer(0, count - 1));
    x[place] = 1e9f;
    for (size_t i = 0; i < x.size(); i += 7) {
      if (i != place) x[i] = kNan;
    }
    EXPECT_EQ(ArgMax(x), static_cast<int32_t>(place)) << count;
  }
}

TEST_P(SamplingTest, LogSumExpAgreesWithDoublePrecision) {
  Random random(2);
  for (int64_t count : {1, 3, 16, 50, 4097, 128256}) {
    std::vector<float> x = random.Normal(count, 5.0f);
    if (count > 3) x[2] = -kInfinity;  // A masked token.
    const LogSumExp result = ComputeLogSumExp(x);
    EXPECT_EQ(result.largest, *std::max_element(x.begin(), x.end()));
    double sum = 0;
    for (float value : x) sum += std::exp(static_cast<double>(value) - result.largest);
    EXPECT_NEAR(result.log_sum, std::log(sum), 1e-6 * (1 + std::abs(std::log(sum)))) << count;
  }
}

TEST_P(SamplingTest, CountsGreaterElements) {
  Random random(3);
  for (int64_t count : {1, 16, 31, 1000}) {
    std::vector<float> x = random.Normal(count);
    x[0] = kNan;
    const float value = x.back();
    EXPECT_EQ(CountGreater(x, value),
              std::count_if(x.begin(), x.end(), [&](float other) { return other > value; }));
  }
}

TEST_P(SamplingTest, TopKIsSortedWithEqualsByIndex) {
  Random random(4);
  for (int64_t count : {1, 10, 1000, 30000}) {
    std::vector<float> x = random.Normal(count);
    for (float& value : x) value = std::round(value * 8);
    std::vector<std::pair<int32_t, float>> all;
    for (size_t i = 0; i < x.size(); ++i) all.emplace_back(static_cast<int32_t>(i), x[i]);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (int k : {0, 1, 5, 20, 1000, 40000}) {
      std::vector<std::pair<int32_t, float>> top;
      TopK(x, k, top);
      ASSERT_EQ(top.size(), std::min(x.size(), static_cast<size_t>(k)));
      EXPECT_TRUE(std::equal(top.begin(), top.end(), all.begin())) << count << " " << k;
    }
  }
}

TEST_P(SamplingTest, TopKPutsNanLast) {
  std::vector<float> x(1000, kNan);
  x[900] = 1.0f;
  x[100] = 2.0f;
  std::vector<std::pair<int32_t, float>> top;
  TopK(x, 3, top);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].first, 100);
  EXPECT_EQ(top[1].first, 900);
  EXPECT_EQ(top[2].first, 0);
}

INSTANTIATE_KERNEL_TEST(SamplingTest);

TEST(Dispatch, ReferenceIsAlwaysThereAndUnknownWordsAreRefused) {
  EXPECT_EQ(AvailableIsas().front(), Isa::kReference);
  const Status unknown = SelectIsa("sse9");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("reference"), std::string::npos);
  ASSERT_TRUE(SelectIsa("reference").has_value());
  EXPECT_EQ(CurrentIsa(), Isa::kReference);
  ASSERT_TRUE(SelectIsa("auto").has_value());
  EXPECT_EQ(CurrentIsa(), AvailableIsas().back());
}

}  // namespace
}  // namespace sluice::kernels
