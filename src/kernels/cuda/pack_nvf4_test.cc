// Rows of NVFP4 numbers as codes and scales: each number comes back exactly, and the codes are
// those that rounding chose.
#include <cmath>
#include <limits>

#include "kernels/cuda/device_kernel_testing.h"
#include "kernels/cuda/nvf4_scales.h"
#include "tensor/float4.h"

namespace sluice::emulated {
namespace {

struct Packed {
  std::vector<uint16_t> rows;  // as they were packed
  std::vector<uint8_t> codes, scales;

  float Scale(int64_t row, int64_t group, int64_t groups) const {
    return ToFloat(Float8E4M3{scales[static_cast<size_t>(device::NvF4ScaleRow(row, groups) +
                                                         device::NvF4ScaleGroup(group))]});
  }
  float Code(int64_t index) const {
    const int byte = codes[static_cast<size_t>(index / 2)];
    return Float4ToFloat(static_cast<uint8_t>(index % 2 == 0 ? byte & 15 : byte >> 4));
  }
};

// Rounds rows in place, and packs them.
Packed RoundAndPack(const std::vector<float>& x, int64_t rows, int64_t cols, float static_scale) {
  Packed packed;
  for (const float value : x) packed.rows.push_back(ToBFloat16(value).bits);
  std::vector<float> scales(static_cast<size_t>(rows));
  RunEmulated(emulator::Order::kForward, [&](const StreamHandle& stream) {
    LaunchConvertRows(stream, {.x = packed.rows.data(),
                               .x_type = ElementType::kBF16,
                               .rows = rows,
                               .cols = cols,
                               .out = {.data = packed.rows.data(),
                                       .type = ElementType::kBF16,
                                       .scales = scales.data(),
                                       .row_scale = device::RowScale::kNvF4,
                                       .static_scale = static_scale}});
  });
  packed.scales.resize(static_cast<size_t>(device::NvF4ScaleBytes(rows, cols / 16)));
  const auto pack = [&](const StreamHandle& stream, uint8_t* codes) {
    std::fill(packed.scales.begin(), packed.scales.end(), 0xEE);
    LaunchPackNvF4(stream, {.x = packed.rows.data(),
                            .rows = rows,
                            .cols = cols,
                            .codes = codes,
                            .scales = packed.scales.data()});
  };
  packed.codes = ResultOfBothOrders<uint8_t>(rows * cols / 2, 0xEE, pack);
  return packed;
}

void ExpectSameNumbers(const Packed& packed, int64_t rows, int64_t cols) {
  const int64_t groups = cols / 16;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = ToFloat(BFloat16{packed.rows[static_cast<size_t>(i)]});
    ASSERT_EQ(packed.Code(i) * packed.Scale(i / cols, i % cols / 16, groups), value) << i;
  }
}

TEST(DevicePackNvF4, KeepsEveryNumberAndFillsTheTilesWithZeros) {
  kernels::Random random(1);
  for (const int64_t cols : {16, 48, 64, 416, 8208}) {
    const int64_t rows = cols > 4000 ? 2 : 130, groups = cols / 16;
    const Packed packed = RoundAndPack(random.Normal(rows * cols, 3.0f), rows, cols, 0.0131f);
    ExpectSameNumbers(packed, rows, cols);
    int64_t filled = 0;
    for (const uint8_t scale : packed.scales) filled += scale != 0;
    EXPECT_EQ(filled, rows * groups);
  }
}

// Every ratio of a group's largest number to the tensor's scale, where scales are coarse: below the
// smallest normal number of E4M3, at its ties and beside them, and beyond its largest.
TEST(DevicePackNvF4, KeepsGroupsWhoseScaleWasRoundedFar) {
  kernels::Random random(2);
  const int64_t cols = 16;
  std::vector<float> x;
  int64_t rows = 0;
  for (int step = 0; step < 4096; ++step) {
    // amax / 6 in units of 2^-9, in sixteenths: 0 to 16, then up to beyond 448.
    const float unit = step < 2048 ? static_cast<float>(step) / 128 : std::exp2f(step / 200.0f);
    std::vector<float> group = random.Normal(cols, unit * 6 * 0x1p-9f / 3);
    for (float& value : group) value = std::clamp(value, -unit * 6 * 0x1p-9f, unit * 6 * 0x1p-9f);
    group[3] = -unit * 6 * 0x1p-9f;
    x.insert(x.end(), group.begin(), group.end());
    ++rows;
  }
  for (const float static_scale : {1.0f, 0.75f, 0.0371f, 3.3f}) {
    std::vector<float> scaled = x;
    for (float& value : scaled) value *= static_scale;
    ExpectSameNumbers(RoundAndPack(scaled, rows, cols, static_scale), rows, cols);
  }
}

TEST(DevicePackNvF4, KeepsNanVisible) {
  const int64_t cols = 32;
  std::vector<float> x(2 * cols, 1.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[cols + 20] = -std::numeric_limits<float>::infinity();
  const Packed packed = RoundAndPack(x, 2, cols, 0.01f);
  EXPECT_TRUE(std::isnan(packed.Scale(0, 0, 2)));
  EXPECT_NE(packed.Code(3), 0);
  EXPECT_EQ(packed.Scale(1, 1, 2), 448);
  EXPECT_EQ(packed.Code(cols + 20), -6);
}

}  // namespace
}  // namespace sluice::emulated
