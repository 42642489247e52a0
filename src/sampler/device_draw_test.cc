// The kernel sample_rows draws what DrawToken draws.
#include <cmath>
#include <limits>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/sampling.h"
#include "sampler/draw.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

device::DrawSettings SettingsOf(const SamplingParams& params, double uniform) {
  return {
      .scale = params.temperature == 0 ? 0.0f : static_cast<float>(1 / params.temperature),
      .farthest = params.min_p > 0 ? static_cast<float>(-std::log(params.min_p)) : kInfinity,
      .top_k = static_cast<int32_t>(params.top_k),
      .top_p = params.top_p,
      .uniform = uniform,
  };
}

// Tokens, then errors.
std::vector<int32_t> DrawOnDevice(const std::vector<float>& logits, int64_t cols,
                                  const std::vector<device::DrawSettings>& settings) {
  const auto rows = static_cast<int64_t>(settings.size());
  return emulated::ResultOfBothOrders<int32_t>(
      2 * rows, -2, [&](const StreamHandle& stream, int32_t* out) {
        emulated::LaunchSampleRows(stream,
                                   {.logits = logits.data(),
                                    .rows = rows,
                                    .cols = cols,
                                    .settings = settings.data(),
                                    .tokens = out,
                                    .errors = reinterpret_cast<device::DrawError*>(out + rows)});
      });
}

int32_t DrawOnCpu(std::span<const float> logits, const SamplingParams& params, double uniform) {
  DrawScratch scratch(static_cast<int64_t>(logits.size()));
  const int32_t best = kernels::ArgMax(logits);
  if (params.temperature == 0) return best;
  return DrawToken(logits, logits[static_cast<size_t>(best)], params, uniform, scratch);
}

SamplingParams Params(double temperature, double top_p, int64_t top_k, double min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = top_p;
  params.top_k = top_k;
  params.min_p = min_p;
  return params;
}

std::vector<SamplingParams> ManySettings(int64_t cols) {
  std::vector<SamplingParams> all;
  all.push_back(Params(0, 1, 0, 0));
  for (const double temperature : {0.3, 4.0}) {
    all.push_back(Params(temperature, 1, 0, 0));
    for (const double top_p : {0.9, 0.05, 0.999, 0.999999999})
      all.push_back(Params(temperature, top_p, 0, 0));
    for (const int64_t top_k : {int64_t{1}, int64_t{7}, cols / 2, cols, int64_t{1100}})
      all.push_back(Params(temperature, 1, top_k, 0));
    all.push_back(Params(temperature, 1, 0, 0.1));
    all.push_back(Params(temperature, 0.8, 20, 0.01));
  }
  return all;
}

// Rows that differ in what they ask of the cuts.
std::vector<std::vector<float>> ManyRows(int64_t cols, kernels::Random& random) {
  std::vector<std::vector<float>> rows;
  rows.push_back(random.Normal(cols));                           // flat: many in a bucket
  rows.push_back(random.Normal(cols, 12.0f));                    // steep: weights from 1 to 0
  rows.push_back(kernels::Rounded(random.Normal(cols, 0.02f)));  // one bucket, with equals
  rows.push_back(std::vector<float>(static_cast<size_t>(cols), 1.5f));
  rows.push_back(random.Normal(cols, 3.0f));
  for (int64_t i = 1; i < cols; i += 3) rows.back()[static_cast<size_t>(i)] = -kInfinity;
  rows.push_back(std::vector<float>(static_cast<size_t>(cols), -50.0f));  // far away, all equal
  rows.back()[static_cast<size_t>(cols / 2)] = 0.0f;
  return rows;
}

TEST(DeviceDraw, HeavyDrawsTheTokensOfTheCpu) {
  kernels::Random random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const int64_t cols : {5, 300, 2100}) {
    std::vector<float> logits;
    std::vector<device::DrawSettings> settings;
    std::vector<int32_t> expected;
    const std::vector<SamplingParams> all = ManySettings(cols);
    for (const std::vector<float>& row : ManyRows(cols, random)) {
      for (size_t i = 0; i < all.size(); ++i) {
        // The ends of the interval, the middle of equal weights, and what rounding could ask for.
        constexpr double kEnds[] = {0.0, 1 - 0x1p-53, 0.5, 1.0};
        const double number = i % 7 < 4 ? kEnds[i % 7] : uniform(random.engine());
        logits.insert(logits.end(), row.begin(), row.end());
        settings.push_back(SettingsOf(all[i], number));
        expected.push_back(DrawOnCpu(row, all[i], number));
      }
    }
    const std::vector<int32_t> drawn = DrawOnDevice(logits, cols, settings);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(drawn[i], expected[i])
          << cols << " logits, row " << i / all.size() << ", settings " << i % all.size();
      ASSERT_EQ(drawn[expected.size() + i], 0);
    }
  }
}

TEST(DeviceDraw, TakesTheFirstOfTheLargestAtTemperatureZero) {
  std::vector<float> row(9000, -1.0f);
  const auto largest = [&row] {
    return DrawOnDevice(row, static_cast<int64_t>(row.size()), {SettingsOf(Params(0, 1, 0, 0), 0)});
  };
  EXPECT_EQ(largest(), (std::vector<int32_t>{0, 0}));
  row[8999] = row[4500] = 0.0f;
  row[3000] = -0.0f;
  EXPECT_EQ(largest(), (std::vector<int32_t>{3000, 0}));
}

TEST(DeviceDraw, SaysWhichRowsHaveNothingToDraw) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {0, nan,       1,          -kInfinity, -kInfinity, -kInfinity,
                                     1, kInfinity, -kInfinity, 2,          -kInfinity, -kInfinity};
  const std::vector<device::DrawSettings> settings(4, SettingsOf(Params(1, 0.5, 0, 0), 0.3));
  EXPECT_EQ(DrawOnDevice(logits, 3, settings), (std::vector<int32_t>{-1, -1, -1, 0, 1, 2, 2, 0}));
}

}  // namespace
}  // namespace sluice
