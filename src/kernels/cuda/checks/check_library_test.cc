#include "kernels/cuda/checks/check_library.h"

#include <gmock/gmock.h>

#include "device/emulated_device.h"
#include "kernels/cuda/library_linear_testing.h"

namespace sluice::checks {
namespace {

device::DeviceLinearOptions WithStandIn() {
  return {.workspace_bytes = 1 << 20, .expand_bytes = 1 << 16, .library = SLUICE_FAKE_CUBLASLT};
}

// A shape with odd sizes and a shape with few rows are enough to reveal errors.
constexpr size_t kFewShapes = 2;

// Marked heavy, because the tests of DeviceLinear cover the same accesses under a sanitizer in
// seconds.
TEST(CheckLibrary, HeavyPassesWithTheStandIn) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  CheckRun run(*device, {});
  CheckLibraryProducts(run, WithStandIn());
  for (const CheckRow& row : run.rows())
    EXPECT_TRUE(row.passed) << row.name << " " << row.shape << ": " << row.message;
  EXPECT_GT(run.rows().size(), 30u);
}

Result<DeviceUnderTest> Blackwell() {
  device::TheFakeCublasLt().compute_capability = 100;
  return DeviceUnderTest::Of(
      std::make_unique<EmulatedDevice>(EmulatedDeviceOptions{.compute_major = 10}));
}

void PackOtherRows(const StreamHandle& stream, const device::PackNvF4Args& args) {
  device::PackNvF4Args other = args;
  other.x += args.cols;
  --other.rows;
  emulated::LaunchPackNvF4(stream, args);
  emulated::LaunchPackNvF4(stream, other);
}

TEST(CheckLibrary, HeavyMultipliesNvF4AsItIsOnBlackwell) {
  for (const bool is_right : {true, false}) {
    auto device = Blackwell();
    ASSERT_TRUE(device);
    device::DeviceKernels kernels = device->kernels();
    if (!is_right) kernels.pack_nvf4 = PackOtherRows;
    device->ReplaceKernels(kernels);
    CheckRun run(*device, {});
    CheckLibraryProducts(run, WithStandIn(), kFewShapes);
    int64_t count = 0, refused = 0;
    for (const CheckRow& row : run.rows()) {
      if (row.skipped) {
        // Only the shapes with 130 rows, because 130 is not a multiple of 16.
        const bool is_way = row.message == "refused in the way 'library, NVFP4'";
        refused += is_way;
        // The fake library supports row scales only on 9.0, like the real library according to its
        // documentation.
        if (row.message == "refused in the way 'library, scales of rows'") continue;
        EXPECT_TRUE(is_way ? row.shape.starts_with("65 x 130 x 128, nvfp4 x nvfp4")
                           : row.shape == "2 products")
            << row.shape << ": " << row.message;
        continue;
      }
      const bool is_nvf4 = row.shape.find("nvfp4 x nvfp4") != std::string::npos &&
                           row.shape.find("x 130 x") == std::string::npos;
      count += is_nvf4;
      EXPECT_EQ(row.passed, is_right || !is_nvf4) << row.shape << ": " << row.message;
    }
    EXPECT_EQ(count, 2);
    EXPECT_EQ(refused, 2);
  }
  device::TheFakeCublasLt().compute_capability = 90;
}

TEST(CheckLibrary, SaysThatThereIsNone) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  CheckRun run(*device, {});
  CheckLibrary(run);
  ASSERT_EQ(run.rows().size(), 1u);
  EXPECT_TRUE(run.rows()[0].skipped);
}

// Faulty kernels that omit the bias, or expand one row too few.
void WithoutBias(const StreamHandle& stream, const device::ScaleResultsArgs& args) {
  device::ScaleResultsArgs less = args;
  less.bias = nullptr;
  emulated::LaunchScaleResults(stream, less);
}
void WithoutLastRow(const StreamHandle& stream, const device::ExpandWeightsArgs& args) {
  device::ExpandWeightsArgs less = args;
  --less.rows;
  emulated::LaunchExpandWeights(stream, less);
}

TEST(CheckLibrary, HeavyFindsWhatIsWrong) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  const device::DeviceKernels right = device->kernels();
  for (const bool is_bias : {true, false}) {
    device::DeviceKernels wrong = right;
    if (is_bias)
      wrong.scale_results = WithoutBias;
    else
      wrong.expand_weights = WithoutLastRow;
    device->ReplaceKernels(wrong);
    CheckRun run(*device, {});
    CheckLibraryProducts(run, WithStandIn(), kFewShapes);
    EXPECT_FALSE(run.passed());
    // Arbitrary numbers may be so large that a missing bias is within the error bounds.
    for (const CheckRow& row : run.rows()) {
      const bool is_exact = row.shape.find("integers") != std::string::npos;
      if (is_bias && is_exact) {
        EXPECT_EQ(row.passed, row.shape.find("bias") == std::string::npos) << row.shape;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::checks
