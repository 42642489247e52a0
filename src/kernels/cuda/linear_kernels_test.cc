// Products of the emulated device against sums in double precision.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "device/emulated_queue.h"
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/linear_shapes.h"
#include "kernels/cuda/linear_testing.h"

namespace sluice::device {
namespace {

// What is asked of a product besides its operands.
struct Wanted {
  bool bf16_results = false;
  const float* bias = nullptr;
  int64_t extra_stride = 0;
};

class Runner {
 public:
  // Rows [first, first + m) of x times `w`, with the threads in both orders; as F32.
  static std::vector<float> Linear(const WeightsSample& w, const InputSample& x, int64_t first,
                                   int64_t m, const Wanted& wanted = {}) {
    LinearArgs args = Args(w, x, first, m, wanted);
    return BothOrders(args, wanted, [](const StreamHandle& stream, const LinearArgs& linear) {
      EXPECT_TRUE(CheckLinear(linear).has_value());
      emulated::LaunchLinear(stream, linear);
    });
  }

  static std::vector<float> Grouped(const WeightsSample& w, const InputSample& x,
                                    const std::vector<int32_t>& row_begin, int64_t m) {
    LinearArgs args = Args(w, x, 0, m, {});
    return BothOrders(args, {}, [&](const StreamHandle& stream, const LinearArgs& linear) {
      const GroupedLinearArgs grouped = {
          linear,           static_cast<int64_t>(row_begin.size()) - 1,
          w.codes_stride(), w.group_scales_stride(),
          linear.w.n,       row_begin.data()};
      EXPECT_TRUE(CheckGroupedLinear(grouped).has_value());
      emulated::LaunchGroupedLinear(stream, grouped);
    });
  }

 private:
  static LinearArgs Args(const WeightsSample& w, const InputSample& x, int64_t first, int64_t m,
                         const Wanted& wanted) {
    const Weights view = w.view();
    return {view,
            x.data() + first * x.row_bytes(),
            x.type(),
            x.scales() == nullptr ? nullptr : x.scales() + first,
            m,
            nullptr,
            wanted.bf16_results ? ElementType::kBF16 : ElementType::kF32,
            view.n + wanted.extra_stride,
            wanted.bias,
            nullptr};
  }

  template <typename Enqueue>
  static std::vector<float> BothOrders(LinearArgs& args, const Wanted& wanted,
                                       const Enqueue& enqueue) {
    const std::vector<float> forward = Once(args, wanted, enqueue);
    emulator::SetOrder(emulator::Order::kReverse);
    const std::vector<float> reverse = Once(args, wanted, enqueue);
    emulator::SetOrder(emulator::Order::kForward);
    for (size_t i = 0; i < forward.size(); ++i) {
      EXPECT_TRUE(forward[i] == reverse[i] || std::isnan(forward[i])) << i;
      if (forward[i] != reverse[i] && !std::isnan(forward[i])) break;
    }
    return forward;
  }

  template <typename Enqueue>
  static std::vector<float> Once(LinearArgs& args, const Wanted& wanted, const Enqueue& enqueue) {
    constexpr float kUntouched = -12288.0f;  // exact in BF16
    const auto count = static_cast<size_t>(args.m * args.y_stride);
    std::vector<float> wide(count, kUntouched);
    std::vector<BFloat16> narrow(count, ToBFloat16(kUntouched));
    std::vector<float> scratch(static_cast<size_t>(LinearScratchBytes(args.w, args.m)) / 4,
                               std::numeric_limits<float>::quiet_NaN());
    args.y = wanted.bf16_results ? static_cast<void*>(narrow.data()) : wide.data();
    args.scratch = scratch.empty() ? nullptr : scratch.data();
    EmulatedQueue queue;
    LaunchFailure failure;
    enqueue(StreamHandle{&queue, &failure}, args);
    queue.RunAll();
    std::vector<float> result;
    for (int64_t m = 0; m < args.m; ++m) {
      for (int64_t n = 0; n < args.y_stride; ++n) {
        const auto at = static_cast<size_t>(m * args.y_stride + n);
        const float value = wanted.bf16_results ? ToFloat(narrow[at]) : wide[at];
        if (n < args.w.n) {
          result.push_back(value);
        } else {
          EXPECT_EQ(value, kUntouched);
        }
      }
    }
    return result;
  }
};

// Every product of F32 sums of k exact products, whatever their order, is within k roundings of
// 2^-24 of the sum of magnitudes; a few more for scales and bias.
void ExpectNear(const std::vector<float>& y, int64_t y_row, const WeightsSample& w, int64_t expert,
                const InputSample& x, int64_t x_row, const Wanted& wanted = {}) {
  const int64_t num_n = w.view().n, num_k = w.view().k;
  for (int64_t n = 0; n < num_n; ++n) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < num_k; ++k) {
      const double product = x.Value(x_row, k) * w.Number(n, k, expert);
      sum += product;
      magnitude += std::abs(product);
    }
    const double scale = x.RowScale(x_row) * w.RowScale(n, expert);
    const double bias = wanted.bias == nullptr ? 0 : wanted.bias[n];
    const double expected = sum * scale + bias;
    double tolerance =
        (magnitude * std::abs(scale) + std::abs(bias)) * static_cast<double>(num_k + 8) * 0x1p-24;
    if (wanted.bf16_results) tolerance += (std::abs(expected) + tolerance) * 0x1p-8;
    const float actual = y[static_cast<size_t>(y_row * num_n + n)];
    ASSERT_NEAR(actual, expected, tolerance) << "row " << x_row << ", column " << n;
  }
}

class LinearKernels : public testing::TestWithParam<WeightsFormat> {};

INSTANTIATE_TEST_SUITE_P(Formats, LinearKernels, testing::ValuesIn(AllWeightsFormats()),
                         [](const auto& info) { return info.param.name; });

TEST_P(LinearKernels, EqualSumsInDoublePrecisionAtEdges) {
  kernels::Random random(1);
  for (const int64_t n : {1, 17, 130}) {
    // The last: of 16 bytes that fill no unit of 32 columns, where the format allows that.
    for (const int64_t k : {32, 96, 160, 32 + 3 * 128 / LinearCodeBits(GetParam().type)}) {
      const WeightsSample w(random, GetParam(), n, k);
      for (const int64_t m : {1, 9, 33}) {
        const InputSample x(random, GetParam().x_type, m, k);
        const std::vector<float> y = Runner::Linear(w, x, 0, m);
        for (int64_t row = 0; row < m; row += 4) ExpectNear(y, row, w, 0, x, row);
      }
    }
  }
}

TEST_P(LinearKernels, AddBiasKeepToTheirStrideAndRoundToBf16) {
  kernels::Random random(2);
  constexpr int64_t kN = 70, kK = 256, kM = 18;
  const std::vector<float> bias = random.Normal(kN, 100.0f);
  const WeightsSample w(random, GetParam(), kN, kK);
  const InputSample x(random, GetParam().x_type, kM, kK);
  for (const bool bf16 : {false, true}) {
    const Wanted wanted = {bf16, bias.data(), 5};
    const std::vector<float> y = Runner::Linear(w, x, 0, kM, wanted);
    for (int64_t row = 0; row < kM; ++row) ExpectNear(y, row, w, 0, x, row, wanted);
  }
}

// Ranges of k side by side up to 64 rows, in one block beyond: all tiles, all ways, same bits.
TEST_P(LinearKernels, HeavyGiveARowTheSameBitsInEveryBatch) {
  kernels::Random random(3);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{20, 4096}, {70, 96}}) {
    const WeightsSample w(random, GetParam(), n, k);
    EXPECT_EQ(LinearSplitOf(n, k, GetParam().type).ranges > 1, k == 4096);
    const InputSample x(random, GetParam().x_type, 200, k);
    const std::vector<float> all = Runner::Linear(w, x, 0, 200);
    ExpectNear(all, 199, w, 0, x, 199);
    for (const auto& [first, m] : {std::pair<int64_t, int64_t>{0, 1},
                                   {5, 1},
                                   {199, 1},
                                   {3, 16},
                                   {100, 20},
                                   {9, 40},
                                   {120, 70}}) {
      const std::vector<float> some = Runner::Linear(w, x, first, m);
      for (size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[static_cast<size_t>(first * n) + i]) << first << " " << m;
    }
  }
}

TEST_P(LinearKernels, MeetEachExpertWithItsOwnRows) {
  kernels::Random random(4);
  constexpr int64_t kN = 66;
  struct Case {
    int64_t k;
    std::vector<int32_t> row_begin;
  };
  const std::vector<Case> cases = {
      {96, {0, 0, 3, 3, 40, 41, 41}},  // tiles of 16
      {96, {0, 90, 90, 130}},          // of 64
      {2048, {0, 2, 2, 5}},            // split
  };
  for (const Case& c : cases) {
    const int64_t m = c.row_begin.back(), experts = static_cast<int64_t>(c.row_begin.size()) - 1;
    WeightsSample w(random, GetParam(), kN, c.k, experts);
    const InputSample x(random, GetParam().x_type, m, c.k);
    const std::vector<float> y = Runner::Grouped(w, x, c.row_begin, m);
    for (int64_t expert = 0; expert < experts; ++expert) {
      for (int64_t row = c.row_begin[static_cast<size_t>(expert)];
           row < c.row_begin[static_cast<size_t>(expert) + 1]; row += 7) {
        ExpectNear(y, row, w, expert, x, row);
      }
    }
    // The first expert's rows by themselves.
    const int64_t alone = c.row_begin[1];
    if (alone == 0) continue;
    const std::vector<float> first = Runner::Linear(w, x, 0, alone);
    for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i], y[i]);
  }
}

TEST(LinearKernelsOfManyExperts, FindTheirTiles) {
  kernels::Random random(5);
  const WeightsFormat format = {"bf16", ElementType::kBF16};
  std::vector<int32_t> row_begin = {0};
  for (int expert = 0; expert < 70; ++expert)
    row_begin.push_back(row_begin.back() + (expert % 3 == 0 ? 0 : expert % 5));
  const int64_t m = row_begin.back();
  const WeightsSample w(random, format, 8, 32, 70);
  const InputSample x(random, ElementType::kBF16, m, 32);
  const std::vector<float> y = Runner::Grouped(w, x, row_begin, m);
  for (int64_t expert = 0; expert < 70; ++expert) {
    for (int64_t row = row_begin[static_cast<size_t>(expert)];
         row < row_begin[static_cast<size_t>(expert) + 1]; ++row)
      ExpectNear(y, row, w, expert, x, row);
  }
}

// Codes and scales that are NaN reach their own column alone, and no other input than rows of x.
TEST_P(LinearKernels, KeepNanInItsColumn) {
  if (GetParam().type != ElementType::kF8E4M3 && GetParam().type != ElementType::kF4E2M1) return;
  kernels::Random random(6);
  constexpr int64_t kN = 20, kK = 64;
  WeightsSample w(random, GetParam(), kN, kK);
  if (GetParam().type == ElementType::kF8E4M3) {
    w.codes()[7 * kK + 33] = 0x7F;
    w.codes()[9 * kK + 50] = 0xFF;
  } else {
    w.group_scales()[w.ScaleAt(7, 1)] = GetParam().group_type == GroupScales::kE4M3 ? 0x7F : 0xFF;
    w.group_scales()[w.ScaleAt(9, 0)] = 0xFF;
  }
  const InputSample x(random, GetParam().x_type, 3, kK);
  const std::vector<float> y = Runner::Linear(w, x, 0, 3);
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(std::isnan(y[i]), i % kN == 7 || i % kN == 9) << i;
}

}  // namespace
}  // namespace sluice::device
