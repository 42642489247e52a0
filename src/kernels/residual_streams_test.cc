#include "kernels/residual_streams.h"

#include <cmath>
#include <numeric>

#include "kernels/kernel_testing.h"

namespace sluice::kernels {
namespace {

constexpr int kCount = 3;
constexpr int64_t kWidth = 21, kAll = kCount * kWidth, kRows = 5, kMixes = kCount * (1 + kCount);

struct Streams {
  std::vector<float> matrix, base, scale, streams;

  explicit Streams(uint32_t seed) {
    Random random(seed);
    matrix = random.Normal(kCount * (2 + kCount) * kAll, 0.2f);
    base = random.Normal(kCount * (2 + kCount));
    scale = random.Normal(3);
    streams = random.Normal(kRows * kAll);
  }
  static StreamRule Rule() {
    return {.count = kCount, .width = kWidth, .iterations = 4, .eps = 1e-3f, .norm_eps = 1e-2f};
  }
  StreamParameters Parameters() const { return {matrix.data(), base.data(), scale.data()}; }

  // Returns the input of the function that gives weight `index` of a row. `which`: index of the
  // weight's scale.
  double Input(int64_t row, int index, int which) const {
    double dot = 0, squares = 0;
    for (int64_t i = 0; i < kAll; ++i) {
      const double x = streams[static_cast<size_t>(row * kAll + i)];
      dot += x * matrix[static_cast<size_t>(index * kAll + i)];
      squares += x * x;
    }
    return dot / std::sqrt(squares / kAll + 1e-2) * scale[static_cast<size_t>(which)] +
           base[static_cast<size_t>(index)];
  }
};

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(ResidualStreamsTest, SumsAndMixesAreWhatLoopsCompute) {
  const Streams data(1);
  ThreadPool pool(2);
  std::vector<float> mixes(kRows * kMixes), out(kRows * kWidth);
  CollapseStreams(pool, Streams::Rule(), data.Parameters(), data.streams.data(), kRows,
                  mixes.data(), out.data());
  Random random(2);
  const std::vector<float> delta = random.Normal(kRows * kWidth);
  std::vector<float> after = data.streams;
  ExpandStreams(pool, Streams::Rule(), mixes.data(), delta.data(), kRows, after.data());
  for (int64_t row = 0; row < kRows; ++row) {
    double mix[kCount][kCount];
    for (int j = 0; j < kCount; ++j) {
      double sum = 0;
      for (int k = 0; k < kCount; ++k)
        sum += mix[j][k] = std::exp(data.Input(row, kCount * (2 + j) + k, 2));
      for (int k = 0; k < kCount; ++k) mix[j][k] = mix[j][k] / sum + 1e-3;
    }
    const auto normalize = [&](bool columns) {
      for (int a = 0; a < kCount; ++a) {
        double sum = 1e-3;
        for (int b = 0; b < kCount; ++b) sum += columns ? mix[b][a] : mix[a][b];
        for (int b = 0; b < kCount; ++b) (columns ? mix[b][a] : mix[a][b]) /= sum;
      }
    };
    normalize(true);
    for (int i = 1; i < 4; ++i) {
      normalize(false);
      normalize(true);
    }
    for (int64_t i = 0; i < kWidth; ++i) {
      const auto stream = [&](int k) {
        return double{data.streams[static_cast<size_t>(row * kAll + k * kWidth + i)]};
      };
      double sum = 0;
      for (int k = 0; k < kCount; ++k) sum += (Sigmoid(data.Input(row, k, 0)) + 1e-3) * stream(k);
      ASSERT_NEAR(out[static_cast<size_t>(row * kWidth + i)], sum, 1e-5);
      for (int k = 0; k < kCount; ++k) {
        double expected = 2 * Sigmoid(data.Input(row, kCount + k, 1)) *
                          delta[static_cast<size_t>(row * kWidth + i)];
        for (int j = 0; j < kCount; ++j) expected += mix[j][k] * stream(j);
        ASSERT_NEAR(after[static_cast<size_t>(row * kAll + k * kWidth + i)], expected, 1e-5);
      }
    }
  }
}

TEST(ResidualStreamsTest, ARowDoesNotDependOnTheOthers) {
  const Streams data(3);
  ThreadPool one(1), three(3);
  std::vector<float> mixes(kRows * kMixes), out(kRows * kWidth);
  CollapseStreams(three, Streams::Rule(), data.Parameters(), data.streams.data(), kRows,
                  mixes.data(), out.data());
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<float> own_mixes(kMixes), own(kWidth);
    CollapseStreams(one, Streams::Rule(), data.Parameters(), data.streams.data() + row * kAll, 1,
                    own_mixes.data(), own.data());
    EXPECT_TRUE(std::equal(own.begin(), own.end(), out.begin() + row * kWidth));
    EXPECT_TRUE(std::equal(own_mixes.begin(), own_mixes.end(), mixes.begin() + row * kMixes));
  }
}

}  // namespace
}  // namespace sluice::kernels
