// Products of MXFP4 weights and MXFP4 inputs on the stand-in's GPUs: as codes on gfx950, in BF16 on
// gfx942. The checks of selftest must find seeded faults.
#include <bit>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_hip/open_machine.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/products.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/device_linear.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;
using fake_hip::TheMachine;

const char* const kFormat = "mxfp4 x mxfp4";

const WeightFormat& MxF4Inputs() {
  for (const WeightFormat& format : WeightFormats()) {
    if (format.name == std::string_view(kFormat)) return format;
  }
  ADD_FAILURE() << kFormat;
  return WeightFormats().front();
}

class MxF4ProductsTest : public testing::Test {
 protected:
  MxF4ProductsTest() {
    fake_hip::Machine fresh;
    fresh.num_modules = TheMachine().num_modules;
    TheMachine() = fresh;
  }

  static DeviceUnderTest Open(const char* architecture = "gfx950") {
    TheMachine().architecture = architecture;
    auto device = DeviceUnderTest::Open(DeviceKind::kHip, 0);
    EXPECT_TRUE(device) << device.error().message;
    return *std::move(device);
  }

  // Returns the product's results [m, n] by DeviceLinear, for rows [first, first + m) of x.
  static std::vector<float> Product(const DeviceUnderTest& device, device::DeviceLinear& linear,
                                    const device::Weights& w, const TestInputs& x, int64_t first,
                                    int64_t m, CaseMemory& memory) {
    device::LinearArgs args = LinearArgsOf(w, x, first, m);
    float* const y = memory.Out<float>(m * w.n);
    args.y = y;
    args.y_type = ElementType::kF32;
    args.y_stride = w.n;
    args.scratch = memory.Out<uint8_t>(linear.ScratchBytes(w, m, /*x_is_mxf4=*/true));
    linear.Run(device.stream(), args);
    return memory.Read(y, m * w.n);
  }
};

std::unique_ptr<device::DeviceLinear> Products(const DeviceUnderTest& device) {
  auto linear =
      device::DeviceLinear::Create(device.device(), device.kernels(), {.use_library = false});
  EXPECT_TRUE(linear) << linear.error().message;
  return *std::move(linear);
}

// With small integers, every way has the same exact results.
TEST_F(MxF4ProductsTest, AreOfCodesOnGfx950AndInBf16OnGfx942WithEqualResults) {
  constexpr int64_t kM = 5, kN = 70, kK = 160;
  std::vector<std::vector<float>> results;
  for (const char* architecture : {"gfx950", "gfx942"}) {
    const DeviceUnderTest device = Open(architecture);
    const auto linear = Products(device);
    CaseMemory memory(device);
    const TestWeights weights(MxF4Inputs(), NumberKind::kIntegers, 1, kN, kK);
    const TestInputs x = MakeInputs(memory, MxF4Inputs(), NumberKind::kIntegers, kM, kK);
    results.push_back(Product(device, *linear, weights.Upload(memory), x, 0, kM, memory));
    const bool has_codes = architecture == std::string_view("gfx950");
    EXPECT_EQ(linear->counts().mxf4, has_codes);
    EXPECT_EQ(linear->counts().own, 1);
  }
  EXPECT_EQ(results[0], results[1]);
}

// Sums over k in one range and in several, and tiles of all sizes.
TEST_F(MxF4ProductsTest, OfARowHaveTheSameBitsInEveryBatch) {
  const DeviceUnderTest device = Open();
  const auto linear = Products(device);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{20, 4096}, {70, 160}}) {
    constexpr int64_t kM = 130;
    CaseMemory memory(device);
    const TestWeights weights(MxF4Inputs(), NumberKind::kFree, 1, n, k);
    const TestInputs x = MakeInputs(memory, MxF4Inputs(), NumberKind::kFree, kM, k);
    const device::Weights w = weights.Upload(memory);
    const std::vector<float> all = Product(device, *linear, w, x, 0, kM, memory);
    for (const auto& [first, m] :
         {std::pair<int64_t, int64_t>{0, 1}, {129, 1}, {7, 16}, {64, 17}, {3, 64}, {20, 65}}) {
      const std::vector<float> some = Product(device, *linear, w, x, first, m, memory);
      for (size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(some[i]),
                  std::bit_cast<uint32_t>(all[static_cast<size_t>(first * n) + i]))
            << "row " << first + static_cast<int64_t>(i) / n << " of " << m << ", " << n << " x "
            << k;
      }
    }
  }
  EXPECT_EQ(linear->counts().mxf4, linear->counts().own);
}

// Faults of the packed inputs: the codes, or the scales, of the next group.
device::LinearArgs WithFault(device::LinearArgs args, bool is_of_codes) {
  if (args.x_codes == nullptr) return args;
  if (is_of_codes)
    args.x_codes += device::kMxF4Group / 2;
  else
    ++args.x_group_scales;
  return args;
}
template <bool kIsOfCodes>
void FaultyLinear(const StreamHandle& stream, const device::LinearArgs& args) {
  hip::LaunchLinear(stream, WithFault(args, kIsOfCodes));
}

TEST_F(MxF4ProductsTest, SelftestFindsCodesAndScalesOfOtherGroups) {
  for (const bool is_of_codes : {true, false}) {
    DeviceUnderTest device = Open();
    DeviceKernels kernels = device.kernels();
    kernels.linear = is_of_codes ? FaultyLinear<true> : FaultyLinear<false>;
    device.ReplaceKernels(kernels);
    CheckRun run(device, {});
    for (const CheckPart& part : KernelCheckParts()) {
      if (part.name == "linear") run.RunPart(part);
    }
    int64_t found = 0;
    for (const CheckRow& row : run.rows()) {
      const bool is_faulty = row.name == "linear" && row.shape.find(kFormat) != std::string::npos;
      found += is_faulty;
      EXPECT_EQ(row.passed || row.skipped, !is_faulty) << row.shape << ": " << row.message;
    }
    EXPECT_GE(found, 4);
  }
}

}  // namespace
}  // namespace sluice::checks
