#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/block_maxima.h"
#include "kernels/draw_weights.h"
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
    for (float& value : x) value = std::round(value * 4);  // many ties
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
    if (count > 3) x[2] = -kInfinity;  // a masked token
    const LogSumExp result = ComputeLogSumExp(x);
    EXPECT_EQ(result.largest, *std::max_element(x.begin(), x.end()));
    double sum = 0;
    for (float value : x) sum += std::exp(static_cast<double>(value) - result.largest);
    EXPECT_NEAR(result.log_sum, std::log(sum), 1e-6 * (1 + std::abs(std::log(sum)))) << count;
  }
}

TEST_P(SamplingTest, FindsNanAnywhere) {
  for (size_t count : {size_t{1}, size_t{15}, size_t{16}, size_t{50}}) {
    std::vector<float> x(count, kInfinity);
    EXPECT_FALSE(HasNan(x));
    for (size_t i = 0; i < count; ++i) {
      x[i] = i % 2 == 0 ? kNan : -kNan;
      EXPECT_TRUE(HasNan(x)) << i << " of " << count;
      x[i] = -kInfinity;
    }
    EXPECT_FALSE(HasNan(x));
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

TEST_P(SamplingTest, FindsTheMaximaOfBlocks) {
  Random random(5);
  ThreadPool pool(2);
  for (int64_t columns : {1, 15, 63, 64, 65, 127, 200, 4096, 4099}) {
    constexpr int64_t kRows = 5;
    const int64_t stride = columns + 3, blocks = NumMaxima(columns);
    std::vector<float> x = random.Normal(kRows * stride);
    x[0] = -kInfinity;
    if (columns > 100) {
      x[static_cast<size_t>(stride + 70)] = kNan;
      std::fill_n(x.begin() + 2 * stride, 64, -kInfinity);
      std::fill_n(x.begin() + 3 * stride, 64, kNan);
      x[static_cast<size_t>(4 * stride + 99)] = kInfinity;
    }
    std::vector<float> expected(static_cast<size_t>(kRows * blocks));
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        const float value = x[static_cast<size_t>(row * stride + i)];
        float& block = expected[static_cast<size_t>(row * blocks + i / kMaximaBlock)];
        if (i % kMaximaBlock == 0 || std::isnan(value) || value > block)
          block = std::isnan(block) && i % kMaximaBlock != 0 ? block : value;
      }
    }
    std::vector<float> maxima(expected.size()), by_pool(expected.size());
    FindMaxima(x.data(), stride, kRows, columns, {maxima.data(), blocks});
    FindMaxima(pool, x.data(), stride, kRows, columns, {by_pool.data(), blocks});
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(maxima[i]) && std::isnan(by_pool[i])) << columns << " at " << i;
      } else {
        EXPECT_EQ(maxima[i], expected[i]) << columns << " at " << i;
        EXPECT_EQ(by_pool[i], expected[i]) << columns << " at " << i;
      }
    }
  }
}

TEST_P(SamplingTest, ArgMaxByBlocksIsArgMax) {
  Random random(6);
  for (int64_t count : {1, 64, 65, 1000, 128256}) {
    for (float spread : {0.0f, 0.3f, 100.0f}) {
      std::vector<float> x = random.Normal(count);
      for (float& value : x) value = std::round(value * spread);  // many ties
      std::vector<float> maxima(static_cast<size_t>(NumMaxima(count)));
      FindMaxima(x.data(), 0, 1, count, {maxima.data(), 0});
      EXPECT_EQ(ArgMaxByBlocks(x, maxima), ArgMax(x)) << count << ", " << spread;
    }
  }
}

// Every vector version must be bit-identical to the scalar version.
TEST_P(SamplingTest, WeightsOfADrawAreThoseOfThePlainForm) {
  Random random(7);
  for (int64_t count : {1, 7, 255, 256, 300, 1025, 20003}) {
    for (float spread : {0.01f, 3.0f, 60.0f}) {
      const std::vector<float> x = [&] {
        std::vector<float> logits = random.Normal(count, spread);
        if (count > 8) logits[3] = -kInfinity;
        return logits;
      }();
      const float largest = *std::max_element(x.begin(), x.end());
      for (const DrawCut cut : {DrawCut{largest, 1, kInfinity, -kInfinity},
                                DrawCut{largest, 1.4f, 3.5f, largest - 4}}) {
        std::vector<float> weights(x.size()), expected(x.size());
        DrawWeights(x, cut, weights);
        for (size_t i = 0; i < x.size(); ++i) {
          const float distance = (largest - x[i]) * cut.scale;
          if (distance <= cut.farthest && x[i] >= cut.smallest) expected[i] = ExpOfMinus(distance);
        }
        ASSERT_EQ(weights, expected) << count << ", " << spread;
        std::vector<double> sums(static_cast<size_t>(NumDrawBlocks(count)));
        DrawBlockSums(weights, sums);
        for (size_t block = 0; block < sums.size(); ++block) {
          float lanes[8] = {};
          const size_t begin = block * kDrawSumBlock;
          const size_t end = std::min<size_t>(begin + kDrawSumBlock, x.size());
          const size_t whole = begin + (end - begin) / 8 * 8;
          for (size_t i = begin; i < whole; ++i) lanes[i % 8] += weights[i];
          double sum = 0;
          for (const float lane : lanes) sum += static_cast<double>(lane);
          for (size_t i = whole; i < end; ++i) sum += static_cast<double>(weights[i]);
          EXPECT_EQ(sums[block], sum) << count << ", block " << block;
        }
      }
    }
  }
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
