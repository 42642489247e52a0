#include <limits>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/sampling.h"

namespace sluice::emulated {
namespace {

struct Found {
  int32_t token, has_nan;
};

Found ArgMaxOf(const std::vector<float>& row) {
  const auto found =
      ResultOfBothOrders<int32_t>(2, -1, [&](const StreamHandle& stream, int32_t* out) {
        LaunchArgMax(stream, {.logits = row.data(),
                              .rows = 1,
                              .cols = static_cast<int64_t>(row.size()),
                              .tokens = out,
                              .has_nan = out + 1});
      });
  return {found[0], found[1]};
}

TEST(DeviceArgMax, IsTheFirstOfTheLargest) {
  kernels::Random random(1);
  for (const int64_t cols : {1, 5, 32, 500, 8192, 20001}) {
    const int64_t rows = 3;
    std::vector<float> logits = random.Normal(rows * cols);
    // Equal largest ones in the second row.
    for (const int64_t col : {cols / 3, cols / 2, cols - 1}) logits[cols + col] = 9;
    std::vector<int32_t> has_nan(rows, -1);
    const auto tokens =
        ResultOfBothOrders<int32_t>(rows, -1, [&](const StreamHandle& stream, int32_t* out) {
          LaunchArgMax(stream, {.logits = logits.data(),
                                .rows = rows,
                                .cols = cols,
                                .tokens = out,
                                .has_nan = has_nan.data()});
        });
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> one(logits.begin() + row * cols, logits.begin() + (row + 1) * cols);
      EXPECT_EQ(tokens[row], kernels::ArgMax(one));
      EXPECT_EQ(tokens[row], ArgMaxOf(one).token);
    }
    EXPECT_EQ(has_nan, std::vector<int32_t>(rows, 0));
  }
}

TEST(DeviceArgMax, TakesNanForTheSmallestAndSaysThatItIsThere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto expect = [](const std::vector<float>& row, int32_t token, int32_t has_nan) {
    const Found found = ArgMaxOf(row);
    EXPECT_EQ(found.token, token);
    EXPECT_EQ(found.has_nan, has_nan);
    EXPECT_EQ(found.token, kernels::ArgMax(row));
  };
  expect({nan, -3, -2, nan}, 2, 1);
  expect({nan, -infinity, nan}, 1, 1);
  expect({nan, nan}, 0, 1);
  expect({-infinity, -infinity}, 0, 0);
  expect({-5, -0.0f, 0.0f, -1}, 1, 0);
  expect({-5, infinity, infinity}, 1, 0);
  std::vector<float> long_row(9000, -1.0f);
  long_row[8999] = nan;
  expect(long_row, 0, 1);
}

}  // namespace
}  // namespace sluice::emulated
