#include "kernels/cuda/expert_products.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/library_linear_testing.h"

namespace sluice::device {
namespace {

using checks::CaseMemory;
using checks::DeviceUnderTest;
using checks::NumberKind;
using checks::ProductOutput;
using checks::TestInputs;
using checks::TestWeights;
using checks::WeightFormat;
using checks::WeightFormats;

// Seconds that our own kernels take on the fake library's clock.
constexpr double kTileSeconds = 1, kWarpgroupSeconds = 1e-9;
double* own_clock;
void TilesByClock(const StreamHandle& stream, const LinearArgs& args) {
  emulated::LaunchLinear(stream, args);
  static_cast<EmulatedQueue*>(stream.native)->Enqueue([] { *own_clock += kTileSeconds; });
}
void WarpgroupsByClock(const StreamHandle& stream, const LinearArgs& args) {
  emulated::LaunchLinearGroups(stream, args);
  static_cast<EmulatedQueue*>(stream.native)->Enqueue([] { *own_clock += kWarpgroupSeconds; });
}

class ExpertProductsTest : public ::testing::Test {
 protected:
  void Open(bool with_library) {
    linear_.reset();
    device_.emplace(*DeviceUnderTest::Of(
        std::make_unique<ClockDevice>(EmulatedDeviceOptions{}, &fake_.seconds)));
    DeviceLinearOptions options{.workspace_bytes = 1 << 20, .expand_bytes = 1 << 16};
    if (with_library) options.library = SLUICE_FAKE_CUBLASLT;
    auto linear = DeviceLinear::Create(device_->device(), kernels_, options);
    ASSERT_TRUE(linear.has_value()) << linear.error().message;
    linear_ = *std::move(linear);
  }

  FakeCublasLtState& fake_ = ResetFakeCublasLt();
  DeviceKernels kernels_ = device::KernelsOf(DeviceKind::kEmulated);
  std::optional<DeviceUnderTest> device_;
  std::unique_ptr<DeviceLinear> linear_;
};

struct Experts {
  Experts(CaseMemory& memory, const WeightFormat& format, const std::vector<int32_t>& rows,
          int64_t n, int64_t k, int64_t scratch_bytes)
      : weights(format, NumberKind::kIntegers, std::ssize(rows), n, k) {
    row_begin = {0};
    for (const int32_t count : rows) row_begin.push_back(row_begin.back() + count);
    const int64_t m = row_begin.back();
    x = MakeInputs(memory, format, NumberKind::kIntegers, m, k);
    args.linear = checks::LinearArgsOf(weights.Upload(memory), x, 0, m);
    args.linear.y_type = ElementType::kF32;
    args.linear.y_stride = n;
    args.linear.scratch = memory.Out<uint8_t>(scratch_bytes);
    args.num_experts = std::ssize(rows);
    args.codes_stride = weights.codes_stride();
    args.group_scales_stride = weights.group_scales_stride();
    args.row_scales_stride = weights.row_scales_stride();
    args.row_begin = memory.In(row_begin);
  }

  TestWeights weights;
  std::vector<int32_t> row_begin;
  TestInputs x;
  GroupedLinearArgs args{};
};

// All numbers are integers, so all ways have the same results.
TEST_F(ExpertProductsTest, HaveTheResultsOfTheGroupedProduct) {
  for (const bool with_library : {false, true}) {
    Open(with_library);
    for (const WeightFormat& format : WeightFormats()) {
      SCOPED_TRACE(std::string(format.name) + (with_library ? ", library" : ""));
      CaseMemory memory(*device_);
      constexpr int64_t kN = 48, kK = 64, kScratch = 4 << 20;
      Experts experts(memory, format, {70, 0, 3, 12}, kN, kK, kScratch);
      ASSERT_LE(linear_->ScratchBytes(experts.args.linear.w, experts.args.linear.m), kScratch);
      ProductOutput grouped(memory, ElementType::kF32, experts.args.linear.m, kN, kN);
      ProductOutput apart(memory, ElementType::kF32, experts.args.linear.m, kN, kN);
      experts.args.linear.y = grouped.data();
      memory.Launch(&DeviceKernels::grouped_linear, experts.args);
      experts.args.linear.y = apart.data();
      RunExperts(*linear_, device_->stream(), experts.args, experts.row_begin);
      grouped.Read();
      apart.Read();
      ASSERT_TRUE(memory.ok()) << memory.status().error().message;
      for (int64_t m = 0; m < experts.args.linear.m; ++m) {
        for (int64_t n = 0; n < kN; ++n) ASSERT_EQ(apart.BitsAt(m, n), grouped.BitsAt(m, n)) << m;
      }
    }
    // Only one of the three experts has so many rows that the library is used without a
    // measurement.
    const auto formats = static_cast<int64_t>(WeightFormats().size());
    EXPECT_EQ(linear_->counts().library, with_library ? formats : 0) << fake_.complaint;
    EXPECT_EQ(linear_->counts().own, (with_library ? 2 : 3) * formats);
  }
}

TEST_F(ExpertProductsTest, AreTakenApartWithManyRowsAndALibrary) {
  const auto is_worth = [&](const std::vector<int32_t>& rows) {
    CaseMemory memory(*device_);
    Experts experts(memory, WeightFormats().front(), rows, 48, 64, 1);
    return IsWorthTakingApart(*linear_, experts.args);
  };
  Open(/*with_library=*/true);
  EXPECT_TRUE(is_worth({150, 0}));
  EXPECT_FALSE(is_worth({100, 0}));
  Open(/*with_library=*/false);
  EXPECT_FALSE(is_worth({150, 0}));
}

// Our own products of warpgroups do not justify copying the row counts to the host.
TEST_F(ExpertProductsTest, AreNotTakenApartForWarpgroups) {
  own_clock = &fake_.seconds;
  kernels_.linear = TilesByClock;
  kernels_.linear_groups = WarpgroupsByClock;
  Open(/*with_library=*/true);
  CaseMemory memory(*device_);
  constexpr int64_t kN = 48, kK = 64, kRows = 80, kScratch = 4 << 20;
  const auto format = std::find_if(
      WeightFormats().begin(), WeightFormats().end(),
      [](const WeightFormat& other) { return std::string_view(other.name) == "fp8 x fp8"; });
  ASSERT_NE(format, WeightFormats().end());
  Experts experts(memory, *format, {2 * kRows, 0}, kN, kK, kScratch);
  experts.args.linear.y = ProductOutput(memory, ElementType::kF32, 2 * kRows, kN, kN).data();
  EXPECT_TRUE(IsWorthTakingApart(*linear_, experts.args)) << "before a measurement";
  const LinearArgs product = ExpertProduct(experts.args, 0, 0, kRows);
  const Status tuned = linear_->Tune(device_->stream(), product);
  ASSERT_TRUE(tuned.has_value()) << tuned.error().message;
  ASSERT_EQ(NameOf(linear_->Choose(product)), NameOf(LinearWay::kGroups));
  EXPECT_FALSE(IsWorthTakingApart(*linear_, experts.args));
}

}  // namespace
}  // namespace sluice::device
