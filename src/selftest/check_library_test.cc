#include "selftest/check_library.h"

#include <gmock/gmock.h>

namespace sluice::selftest {
namespace {

device::DeviceLinearOptions WithStandIn() {
  return {.workspace_bytes = 1 << 20, .expand_bytes = 1 << 16, .library = SLUICE_FAKE_CUBLASLT};
}

TEST(CheckLibrary, PassesWithTheStandIn) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  CheckRun run(*device, {}, {});
  CheckLibraryProducts(run, WithStandIn());
  for (const CheckRow& row : run.rows())
    EXPECT_TRUE(row.passed) << row.name << " " << row.shape << ": " << row.message;
  EXPECT_GT(run.rows().size(), 30u);
}

TEST(CheckLibrary, SaysThatThereIsNone) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  CheckRun run(*device, {}, {});
  CheckLibrary(run);
  ASSERT_EQ(run.rows().size(), 1u);
  EXPECT_TRUE(run.rows()[0].skipped);
}

// Kernels that forget the bias, or expand a row too few.
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

TEST(CheckLibrary, FindsWhatIsWrong) {
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
    CheckRun run(*device, {}, {});
    CheckLibraryProducts(run, WithStandIn());
    EXPECT_FALSE(run.passed());
    // Free numbers may be so large that a bias is lost in their bounds.
    for (const CheckRow& row : run.rows()) {
      const bool is_exact = row.shape.find("integers") != std::string::npos;
      if (is_bias && is_exact) {
        EXPECT_EQ(row.passed, row.shape.find("bias") == std::string::npos) << row.shape;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::selftest
