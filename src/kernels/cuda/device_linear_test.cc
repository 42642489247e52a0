#include "kernels/cuda/device_linear.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kernels/cuda/checks/check_library.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/library_linear_testing.h"

namespace sluice::device {
namespace {

using checks::CaseMemory;
using checks::Comparison;
using checks::DeviceUnderTest;
using checks::ModelProduct;
using checks::ModelProductCase;
using checks::WeightFormat;
using checks::WeightFormats;
using testing::ElementsAre;
using testing::HasSubstr;

const WeightFormat& FormatNamed(std::string_view name) {
  for (const WeightFormat& format : WeightFormats()) {
    if (format.name == name) return format;
  }
  ADD_FAILURE() << name;
  return WeightFormats().front();
}
const WeightFormat& kBf16 = FormatNamed("bf16");
const WeightFormat& kF8 = FormatNamed("fp8 x fp8");
const WeightFormat& kI8 = FormatNamed("int8");
const WeightFormat& kNvF4 = FormatNamed("nvfp4");
const WeightFormat& kNvF4Inputs = FormatNamed("nvfp4 x nvfp4");

// The numbers are integers, so that every way of computing a product has the same exact result.
class DeviceLinearTest : public testing::Test {
 protected:
  static DeviceLinearOptions Options() {
    return {
        .workspace_bytes = 1 << 20, .expand_bytes = 128 * 64 * 2, .library = SLUICE_FAKE_CUBLASLT};
  }
  void Open(const DeviceLinearOptions& options = Options(),
            const EmulatedDeviceOptions& device = {}) {
    linear_.reset();
    device_.emplace(*DeviceUnderTest::Of(std::make_unique<ClockDevice>(device, &fake_.seconds)));
    auto linear = DeviceLinear::Create(device_->device(), kernels_, options);
    ASSERT_TRUE(linear.has_value()) << linear.error().message;
    linear_ = *std::move(linear);
  }
  // Runs the product in exactly the scratch that it asks for.
  void ExpectProduct(const ModelProductCase& test) {
    CaseMemory memory(*device_);
    Comparison comparison;
    ModelProduct(memory, test).Run(*linear_, comparison);
    EXPECT_TRUE(memory.ok()) << memory.status().error().message;
    EXPECT_TRUE(comparison.passed()) << comparison.first_failure();
  }

  FakeCublasLtState& fake_ = ResetFakeCublasLt();
  DeviceKernels kernels_ = device::KernelsOf(DeviceKind::kEmulated);
  std::optional<DeviceUnderTest> device_;
  std::unique_ptr<DeviceLinear> linear_;
};

TEST_F(DeviceLinearTest, ServesEveryFormatByTheLibrary) {
  Open();
  EXPECT_THAT(linear_->library(), HasSubstr("cuBLASLt 13.0.2"));
  int64_t count = 0;
  for (const WeightFormat& format : WeightFormats()) {
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      for (const bool has_bias : {false, true}) {
        // Three chunks of expanded weights, the last of them smaller.
        for (const int64_t n : {48, 304}) {
          SCOPED_TRACE(fmt::format("{}, y {}, bias {}, n {}", format.name, static_cast<int>(y_type),
                                   has_bias, n));
          ExpectProduct(
              {.m = 66, .n = n, .k = 64, .format = format, .y_type = y_type, .has_bias = has_bias});
          EXPECT_EQ(linear_->counts().library, ++count) << fake_.complaint;
        }
      }
    }
  }
  EXPECT_EQ(linear_->counts().own, 0);
  EXPECT_EQ(linear_->counts().refused, 0);
}

TEST_F(DeviceLinearTest, ServesSmallStepsByOwnKernels) {
  Open();
  for (const WeightFormat& format : WeightFormats()) {
    ExpectProduct({.m = kMaxSkinnyRows, .n = 32, .k = 32, .format = format, .has_bias = true});
  }
  EXPECT_EQ(linear_->counts().own, static_cast<int64_t>(WeightFormats().size()));
  EXPECT_EQ(linear_->counts().refused, 0);
  EXPECT_EQ(fake_.num_products, 0);
  CaseMemory memory(*device_);
  Comparison nothing;
  ModelProduct(memory, {.m = 0, .n = 32, .k = 32, .format = kBf16, .has_bias = true})
      .Run(*linear_, nothing);
  EXPECT_TRUE(memory.ok());
  EXPECT_EQ(linear_->counts().own, static_cast<int64_t>(WeightFormats().size()));
}

TEST_F(DeviceLinearTest, ScalesAfterwardsWhereTheLibraryDoesNot) {
  const auto expect_served = [&] {
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      ExpectProduct({.m = 70, .n = 48, .k = 64, .format = kF8, .y_type = y_type, .has_bias = true});
    }
    EXPECT_EQ(linear_->counts().library, 2) << fake_.complaint;
  };
  Open(Options(), {.compute_major = 8, .compute_minor = 9});
  expect_served();
  Open(Options(), {.compute_major = 12});
  expect_served();
  fake_.refuse_scales = true;
  Open();
  expect_served();
}

TEST_F(DeviceLinearTest, ServesByOwnKernelsWhatTheLibraryRefuses) {
  Open();
  fake_.refuse_all = true;
  int64_t count = 0;
  for (const WeightFormat& format : WeightFormats()) {
    for (int i = 0; i < 2; ++i) {
      ExpectProduct({.m = 66, .n = 48, .k = 64, .format = format, .has_bias = true});
      EXPECT_EQ(linear_->counts().refused, ++count);
    }
  }
  EXPECT_EQ(linear_->counts().own, count);
  EXPECT_EQ(linear_->counts().library, 0);
  EXPECT_EQ(fake_.num_products, 0);
}

TEST_F(DeviceLinearTest, StartsNothingThatTheLibraryWillNotFinish) {
  Open();
  fake_.refuse_rows = 304 - 2 * 128;  // of the last chunk
  ExpectProduct({.m = 66, .n = 304, .k = 64, .format = kI8, .has_bias = true});
  EXPECT_EQ(linear_->counts().refused, 1);
  EXPECT_EQ(fake_.num_products, 0);
}

TEST_F(DeviceLinearTest, ServesE4m3ByOwnKernelsWhereTheLibraryCannot) {
  const auto expect_own = [&](int64_t n) {
    ExpectProduct({.m = 66, .n = n, .k = 64, .format = kF8});
    EXPECT_EQ(linear_->counts().own, 1);
    EXPECT_EQ(linear_->counts().refused, 0);
  };
  Open(Options(), {.compute_major = 8, .compute_minor = 0});
  expect_own(48);
  Open();
  expect_own(40);
  EXPECT_EQ(fake_.num_products, 0);
}

constexpr EmulatedDeviceOptions kBlackwell{.compute_major = 10};

TEST_F(DeviceLinearTest, MultipliesNvF4ByNvF4AsTheyAreOnBlackwell) {
  for (const EmulatedDeviceOptions& device :
       {kBlackwell, EmulatedDeviceOptions{.compute_major = 12}}) {
    Open(Options(), device);
    int64_t count = 0;
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      for (const bool has_bias : {false, true}) {
        // Scales that fill tiles, and others.
        for (const auto& [m, n, k] : {std::array<int64_t, 3>{66, 48, 96}, {128, 304, 64}}) {
          SCOPED_TRACE(fmt::format("{} x {} x {}, y {}, bias {}", m, n, k, static_cast<int>(y_type),
                                   has_bias));
          ExpectProduct({.m = m,
                         .n = n,
                         .k = k,
                         .format = kNvF4Inputs,
                         .y_type = y_type,
                         .has_bias = has_bias});
          EXPECT_EQ(linear_->counts().nvf4, ++count) << fake_.complaint;
        }
      }
    }
    EXPECT_EQ(linear_->counts().library, count);
    EXPECT_EQ(linear_->counts().refused, 0);
    EXPECT_EQ(fake_.num_products, count);
    fake_.num_products = 0;
  }
}

int64_t num_scalings;
void CountScaling(const StreamHandle& stream, const ScaleResultsArgs& args) {
  ++num_scalings;
  emulated::LaunchScaleResults(stream, args);
}

// One scale of W and one of x, told to the host, are the product's factor: its results are rounded
// once.
TEST_F(DeviceLinearTest, LeavesOneScaleToTheLibrary) {
  kernels_.scale_results = CountScaling;
  for (const WeightFormat& format : {kNvF4Inputs, kF8}) {
    for (const bool is_told : {true, false}) {
      for (const bool has_bias : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, told {}, bias {}", format.name, is_told, has_bias));
        // E4M3 products take scales of rows on Hopper alone.
        Open(Options(), kBlackwell);
        CaseMemory memory(*device_);
        Comparison comparison;
        constexpr float kScale = 0.25f;
        ModelProduct product(memory, {.m = 66,
                                      .n = 48,
                                      .k = 64,
                                      .format = format,
                                      .y_type = ElementType::kBF16,
                                      .has_bias = has_bias,
                                      .same_scale = kScale});
        if (is_told) product.args().w.same_row_scale = product.args().same_x_scale = kScale;
        num_scalings = 0;
        product.Run(*linear_, comparison);
        EXPECT_TRUE(comparison.passed()) << comparison.first_failure();
        EXPECT_EQ(linear_->counts().library, 1) << fake_.complaint;
        EXPECT_EQ(num_scalings, is_told && !has_bias ? 0 : 1);
      }
    }
  }
}

TEST_F(DeviceLinearTest, ExpandsNvF4WeightsWhereTheirInputsAreNot) {
  Open(Options(), kBlackwell);
  ExpectProduct({.m = 66, .n = 48, .k = 64, .format = kNvF4, .has_bias = true});
  EXPECT_EQ(linear_->counts().library, 1);
  EXPECT_EQ(linear_->counts().nvf4, 0);
  EXPECT_EQ(linear_->counts().refused, 0);
}

// The same numbers go another way.
TEST_F(DeviceLinearTest, ExpandsNvF4WeightsWhereTheLibraryRefusesThem) {
  const auto expect_expanded = [&](int64_t n) {
    for (int i = 1; i <= 2; ++i) {
      ExpectProduct({.m = 66,
                     .n = n,
                     .k = 64,
                     .format = kNvF4Inputs,
                     .y_type = ElementType::kBF16,
                     .has_bias = true});
      EXPECT_EQ(linear_->counts().library, i) << fake_.complaint;
      EXPECT_EQ(linear_->counts().refused, i);
    }
    EXPECT_EQ(linear_->counts().nvf4, 0);
    EXPECT_EQ(linear_->counts().own, 0);
  };
  fake_.refuse_f4 = true;
  Open(Options(), kBlackwell);
  expect_expanded(48);
  fake_.refuse_f4 = false;
  Open(Options(), kBlackwell);
  expect_expanded(40);  // no multiple of 16
  fake_.version = 120700;
  Open(Options(), kBlackwell);
  expect_expanded(48);
}

TEST_F(DeviceLinearTest, FailsTheStreamWhereTheLibraryFails) {
  Open();
  fake_.fail = true;
  for (const WeightFormat& format : {kBf16, kI8}) {
    CaseMemory memory(*device_);
    ModelProduct product(memory, {.m = 66, .n = 48, .k = 64, .format = format, .has_bias = true});
    linear_->Run(device_->stream(), product.PrepareResults(*linear_));
    EXPECT_FALSE(device_->stream().Synchronize().has_value());
  }
}

TEST_F(DeviceLinearTest, UsesNoLibraryWhereItMustNot) {
  DeviceLinearOptions none = Options(), invariant = Options(), unnamed = Options();
  none.use_library = false;
  invariant.batch_invariant = true;
  unnamed.library.clear();  // the device is emulated
  for (const DeviceLinearOptions& options : {none, invariant, unnamed}) {
    Open(options);
    EXPECT_EQ(linear_->library(), "");
    EXPECT_THAT(linear_->TuningRows(8192), ElementsAre());
    CaseMemory memory(*device_);
    Comparison comparison;
    ModelProduct product(memory, {.m = 66, .n = 48, .k = 64, .format = kBf16, .has_bias = true});
    product.Run(*linear_, comparison);
    EXPECT_TRUE(comparison.passed()) << comparison.first_failure();
    product.Tune(*linear_);
    EXPECT_TRUE(memory.ok());
    linear_->SaveTactics();
    EXPECT_EQ(linear_->counts().own, 1);
    EXPECT_EQ(fake_.num_products, 0);
  }
}

TEST_F(DeviceLinearTest, RefusesWhatCannotBe) {
  ClockDevice device({}, &fake_.seconds);
  DeviceLinearOptions options = Options();
  options.library = "/nowhere/libcublasLt.so.13";
  auto linear = DeviceLinear::Create(device, kernels_, options);
  ASSERT_FALSE(linear.has_value());
  EXPECT_EQ(linear.error().code, ErrorCode::kNotFound);
  options = Options();
  options.expand_bytes = 0;
  linear = DeviceLinear::Create(device, kernels_, options);
  ASSERT_FALSE(linear.has_value());
  EXPECT_EQ(linear.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(DeviceLinearTest, PlansTheScratchThatItTakes) {
  for (const EmulatedDeviceOptions& device : {kBlackwell, EmulatedDeviceOptions{}}) {
    Open(Options(), device);
    CaseMemory memory(*device_);
    for (const WeightFormat& format : WeightFormats()) {
      for (const int64_t n : {48, 128, 304, 1000}) {
        const Weights w =
            checks::TestWeights(format, checks::NumberKind::kIntegers, 1, n, 64).Upload(memory);
        for (const int64_t m : {1, 64, 65, 4096}) {
          EXPECT_EQ(linear_->ScratchBytes(w, m),
                    DeviceLinear::PlannedScratchBytes(device_->device().info(), Options(), w, m));
        }
      }
    }
  }
  // As if the library were there: 32 MiB for it, and half of 256 MiB of BF16 weights.
  DeviceInfo info = device_->device().info();
  info.kind = DeviceKind::kCuda;
  const Weights w{.codes = nullptr,
                  .type = ElementType::kF4E2M1,
                  .group_scales = nullptr,
                  .group_type = GroupScales::kE8M0,
                  .group = 32,
                  .block_rows = 0,
                  .row_scales = nullptr,
                  .n = 8192,
                  .k = 16384};
  EXPECT_EQ(DeviceLinear::PlannedScratchBytes(info, {}, w, 8192), (32 + 128) << 20);
  EXPECT_LT(DeviceLinear::PlannedScratchBytes(info, {.batch_invariant = true}, w, 8192), 128 << 20);
}

TEST_F(DeviceLinearTest, KeepsTacticsWhereItIsToldAndCan) {
  const auto file = std::filesystem::temp_directory_path() /
                    fmt::format("sluice-device-linear-{}.json", getpid());
  std::filesystem::remove(file);
  DeviceLinearOptions options = Options();
  for (const auto& path : {file, file / "below a file.json"}) {
    options.tactics = path;
    Open(options);
    CaseMemory memory(*device_);
    ModelProduct(memory, {.m = 128, .n = 48, .k = 64, .format = kBf16}).Tune(*linear_);
    EXPECT_TRUE(memory.ok());
    linear_->SaveTactics();  // the second time into no folder: that is no reason to stop
    EXPECT_TRUE(std::filesystem::is_regular_file(file));
  }
  std::filesystem::remove(file);
}

TEST_F(DeviceLinearTest, TunesWhatItWillRun) {
  Open(Options(), kBlackwell);
  EXPECT_THAT(linear_->TuningRows(64), ElementsAre());
  EXPECT_THAT(linear_->TuningRows(100), ElementsAre(100));
  EXPECT_THAT(linear_->TuningRows(1000), ElementsAre(128, 256, 512, 1000));
  EXPECT_THAT(linear_->TuningRows(1024), ElementsAre(128, 256, 512, 1024));
  for (const WeightFormat& format : WeightFormats()) {
    SCOPED_TRACE(format.name);
    const int64_t rows = linear_->TuningRows(100)[0];
    CaseMemory memory(*device_);
    ModelProduct(memory, {.m = rows, .n = 304, .k = 64, .format = format, .has_bias = true})
        .Tune(*linear_);
    ASSERT_TRUE(memory.ok()) << memory.status().error().message;
    const int64_t searches = fake_.num_searches;
    // Of another number of rows, but the same kind.
    ExpectProduct({.m = 90, .n = 304, .k = 64, .format = format, .has_bias = true});
    EXPECT_EQ(fake_.last_algorithm, kFakeFast);
    EXPECT_EQ(fake_.num_searches, searches);
  }
  EXPECT_EQ(linear_->counts().nvf4, 1);
}

}  // namespace
}  // namespace sluice::device
