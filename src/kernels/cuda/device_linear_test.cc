#include "kernels/cuda/device_linear.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "device/emulated_queue.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const WeightFormat& FormatNamed(std::string_view name) {
  for (const WeightFormat& format : WeightFormats()) {
    if (format.name == name) return format;
  }
  ADD_FAILURE() << name;
  return WeightFormats().front();
}
constexpr EmulatedDeviceOptions kBlackwell{.compute_major = 10};

const WeightFormat& kBf16 = FormatNamed("bf16");
const WeightFormat& kF8 = FormatNamed("fp8 x fp8");
const WeightFormat& kI8 = FormatNamed("int8");
const WeightFormat& kNvF4 = FormatNamed("nvfp4");
const WeightFormat& kNvF4Inputs = FormatNamed("nvfp4 x nvfp4");

// Duration of our own kernels on the fake library's clock. Outlives their launches.
double own_seconds, warpgroups_seconds;
double* own_clock;
void LinearByClock(const StreamHandle& stream, const LinearArgs& args) {
  emulated::LaunchLinear(stream, args);
  static_cast<EmulatedQueue*>(stream.native)->Enqueue([] { *own_clock += own_seconds; });
}

void GroupsByClock(const StreamHandle& stream, const LinearArgs& args) {
  emulated::LaunchLinearGroups(stream, args);
  static_cast<EmulatedQueue*>(stream.native)->Enqueue([] { *own_clock += warpgroups_seconds; });
}

// All numbers are integers, so that every way of computing a product has the same exact result.
class DeviceLinearTest : public ::testing::Test {
 protected:
  static DeviceLinearOptions Options() {
    return {
        .workspace_bytes = 1 << 20, .expand_bytes = 128 * 64 * 2, .library = SLUICE_FAKE_CUBLASLT};
  }
  void Open(const DeviceLinearOptions& options = Options(),
            const EmulatedDeviceOptions& device = {}) {
    linear_.reset();
    own_seconds = warpgroups_seconds = 1;
    own_clock = &fake_.seconds;
    kernels_.linear = LinearByClock;
    kernels_.linear_groups = GroupsByClock;
    device_.emplace(*DeviceUnderTest::Of(std::make_unique<ClockDevice>(device, &fake_.seconds)));
    fake_.compute_capability = device_->device().info().compute_capability();
    auto linear = DeviceLinear::Create(device_->device(), kernels_, options);
    ASSERT_TRUE(linear.has_value()) << linear.error().message;
    linear_ = *std::move(linear);
  }
  // Runs the product with exactly the scratch that it requires.
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
        // 304 rows: three chunks of expanded weights, the last of them smaller.
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
  fake_.refuse_rows = 304 - 2 * 128;  // rows of the last chunk
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

TEST_F(DeviceLinearTest, MultipliesNvF4ByNvF4AsTheyAreOnBlackwell) {
  for (const EmulatedDeviceOptions& device :
       {kBlackwell, EmulatedDeviceOptions{.compute_major = 12}}) {
    Open(Options(), device);
    int64_t count = 0;
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      for (const bool has_bias : {false, true}) {
        // Sizes whose scales fill whole tiles, and other sizes.
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

// A single scale of W and a single scale of x, both known on the host, become the factor of the
// product, so results are rounded once.
TEST_F(DeviceLinearTest, LeavesOneScaleToTheLibrary) {
  kernels_.scale_results = CountScaling;
  for (const WeightFormat& format : {kNvF4Inputs, kF8}) {
    for (const bool is_told : {true, false}) {
      for (const bool has_bias : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, told {}, bias {}", format.name, is_told, has_bias));
        // Only Hopper supports row scales in E4M3 products.
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

// The same numbers are computed from expanded weights.
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
  expect_expanded(40);  // not a multiple of 16
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
  unnamed.library.clear();  // an emulated device then uses no library
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
  // Computed as if the library were found: 32 MiB for the library, and half of 256 MiB of BF16
  // weights.
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
    linear_->SaveTactics();  // the second file cannot be written, which is no error
    EXPECT_TRUE(std::filesystem::is_regular_file(file));
  }
  std::filesystem::remove(file);
}

TEST_F(DeviceLinearTest, TunesWhatItWillRun) {
  Open();
  EXPECT_THAT(linear_->TuningRows(8), ElementsAre());
  EXPECT_THAT(linear_->TuningRows(12), ElementsAre(12));
  EXPECT_THAT(linear_->TuningRows(64), ElementsAre(16, 32, 64));
  EXPECT_THAT(linear_->TuningRows(100), ElementsAre(16, 32, 64, 100));
  EXPECT_THAT(linear_->TuningRows(256), ElementsAre(16, 32, 64, 128, 256));
  Open(Options(), kBlackwell);
  EXPECT_THAT(linear_->TuningRows(1), ElementsAre(1));
  EXPECT_THAT(linear_->TuningRows(24), ElementsAre(1, 2, 4, 8, 16, 24));
  for (const WeightFormat& format : WeightFormats()) {
    SCOPED_TRACE(format.name);
    CaseMemory memory(*device_);
    ModelProduct(memory, {.m = 100, .n = 304, .k = 64, .format = format, .has_bias = true})
        .Tune(*linear_);
    ASSERT_TRUE(memory.ok()) << memory.status().error().message;
    const int64_t searches = fake_.num_searches;
    // Another number of rows in the same bucket.
    ExpectProduct({.m = 90, .n = 304, .k = 64, .format = format, .has_bias = true});
    EXPECT_EQ(fake_.last_algorithm, kFakeFast);
    EXPECT_EQ(fake_.num_searches, searches);
  }
  EXPECT_EQ(linear_->counts().nvf4, 1);
  EXPECT_EQ(linear_->counts().library, static_cast<int64_t>(WeightFormats().size()));
}

// Weights with a single row scale, or with one row scale for each of two parts. The fake library's
// clock decides which way is fastest.
struct TunedCase {
  const char* name;
  LinearWay expected;
  int64_t m = 16;
  bool is_nvf4 = false;   // true: NVFP4 by NVFP4; false: E4M3 by E4M3
  bool in_parts = false;  // W has two different scales
  bool fast = false;      // fast sums are allowed
  EmulatedDeviceOptions device = {};
  double own = 1, warpgroups = 1;  // seconds of our own kernels
  double plain = 1, rows = 1, groups = 1, fast_factor = 0.5;
};

class TunedProductTest : public DeviceLinearTest, public ::testing::WithParamInterface<TunedCase> {
 protected:
  // Tunes the product if `tunes`, and runs it.
  void TuneAndRun(const DeviceLinearOptions& options, LinearWay expected, bool tunes) {
    const TunedCase& test = GetParam();
    Open(options, test.device);
    own_seconds = test.own;
    warpgroups_seconds = test.warpgroups;
    fake_.plain_slowdown = test.plain;
    fake_.rows_slowdown = test.rows;
    fake_.groups_slowdown = test.groups;
    fake_.fast_slowdown = test.fast_factor;
    CaseMemory memory(*device_);
    constexpr int64_t kFirst = 128, kRows = 256;
    ModelProduct product(memory, {.m = test.m,
                                  .n = kRows,
                                  .k = 64,
                                  .format = test.is_nvf4 ? kNvF4Inputs : kF8,
                                  .y_type = ElementType::kBF16,
                                  .same_scale = 0.25f,
                                  .first_rows = test.in_parts ? kFirst : 0,
                                  .first_scale = 2,
                                  .tells_scales = true});
    LinearArgs& args = product.args();
    const int64_t products = fake_.num_products;
    if (tunes) product.Tune(*linear_);
    EXPECT_TRUE(tunes || fake_.num_products == products);
    EXPECT_EQ(linear_->counts().own + linear_->counts().library, 0) << "tuning counts no products";
    product.PrepareResults(*linear_);
    EXPECT_EQ(NameOf(linear_->Choose(args)), NameOf(expected));
    Comparison comparison;
    product.Run(*linear_, comparison);
    EXPECT_TRUE(comparison.passed()) << comparison.first_failure();
    EXPECT_EQ(linear_->counts().own,
              expected == LinearWay::kOwn || expected == LinearWay::kGroups ? 1 : 0)
        << fake_.complaint;
    EXPECT_EQ(linear_->counts().refused, 0);
  }
};

TEST_P(TunedProductTest, TakesWhatIsFastestAndRemembersIt) {
  const auto file = std::filesystem::temp_directory_path() /
                    fmt::format("sluice-tuned-{}-{}.json", GetParam().name, getpid());
  std::filesystem::remove(file);
  DeviceLinearOptions options = Options();
  options.tactics = file;
  options.fast_accumulation = GetParam().fast;
  TuneAndRun(options, GetParam().expected, /*tunes=*/true);
  linear_->SaveTactics();
  TuneAndRun(options, GetParam().expected, /*tunes=*/false);  // a restart
  const int64_t products = fake_.num_products;
  TuneAndRun(options, GetParam().expected, /*tunes=*/true);  // already known: measures nothing
  EXPECT_LE(fake_.num_products, products + 2);
  // A saved choice of fast sums is ignored if fast sums are not allowed.
  if (GetParam().fast) {
    options.fast_accumulation = false;
    Open(options, GetParam().device);
    TuneAndRun(options, LinearWay::kOwn, /*tunes=*/false);
  }
  std::filesystem::remove(file);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TunedProductTest,
    ::testing::Values(
        TunedCase{.name = "OwnKernels", .expected = LinearWay::kOwn, .own = 1e-9},
        TunedCase{
            .name = "OwnKernelsForManyRows", .expected = LinearWay::kOwn, .m = 80, .own = 1e-9},
        TunedCase{.name = "Warpgroups", .expected = LinearWay::kGroups, .warpgroups = 1e-9},
        TunedCase{.name = "WarpgroupsForManyRows",
                  .expected = LinearWay::kGroups,
                  .m = 80,
                  .warpgroups = 1e-9},
        TunedCase{.name = "NoWarpgroupsForMoreRows",
                  .expected = LinearWay::kOneScale,
                  .m = 129,
                  .warpgroups = 1e-9,
                  .rows = 2},
        TunedCase{.name = "NoWarpgroupsOnBlackwell",
                  .expected = LinearWay::kOneScale,
                  .device = kBlackwell,
                  .warpgroups = 1e-9},
        TunedCase{.name = "OneScale", .expected = LinearWay::kOneScale, .rows = 2},
        TunedCase{.name = "ScalesOfRows", .expected = LinearWay::kRowScales, .plain = 2},
        TunedCase{.name = "FastSumsWhereAllowed",
                  .expected = LinearWay::kFastOneScale,
                  .fast = true,
                  .rows = 2},
        TunedCase{.name = "FastScalesOfRows",
                  .expected = LinearWay::kFastRowScales,
                  .fast = true,
                  .plain = 2},
        TunedCase{.name = "NoFastSumsThatAreSlower",
                  .expected = LinearWay::kOneScale,
                  .fast = true,
                  .rows = 2,
                  .fast_factor = 3},
        TunedCase{
            .name = "ACallAPart", .expected = LinearWay::kPartScales, .in_parts = true, .rows = 3},
        TunedCase{.name = "OneCallForAllParts",
                  .expected = LinearWay::kRowScales,
                  .in_parts = true,
                  .rows = 1.5},
        TunedCase{.name = "FastCallAPart",
                  .expected = LinearWay::kFastPartScales,
                  .in_parts = true,
                  .fast = true,
                  .rows = 3},
        TunedCase{
            .name = "OneScaleOnBlackwell", .expected = LinearWay::kOneScale, .device = kBlackwell},
        TunedCase{.name = "NvF4OfOneRow",
                  .expected = LinearWay::kNvF4,
                  .m = 1,
                  .is_nvf4 = true,
                  .device = kBlackwell},
        TunedCase{.name = "OwnKernelsForNvF4OfOneRow",
                  .expected = LinearWay::kOwn,
                  .m = 1,
                  .is_nvf4 = true,
                  .device = kBlackwell,
                  .own = 1e-9},
        TunedCase{.name = "NvF4InOneCall",
                  .expected = LinearWay::kNvF4,
                  .m = 20,
                  .is_nvf4 = true,
                  .in_parts = true,
                  .device = kBlackwell},
        TunedCase{.name = "NvF4Expanded",
                  .expected = LinearWay::kExpanded,
                  .m = 20,
                  .is_nvf4 = true,
                  .device = kBlackwell,
                  .groups = 100}),
    [](const auto& info) { return std::string(info.param.name); });

// If measured alone, small weights of a single layer would stay in the cache.
TEST_F(DeviceLinearTest, TakesTurnsWithLayersWhileItTunes) {
  Open();
  CaseMemory memory(*device_);
  std::vector<std::unique_ptr<ModelProduct>> products;
  std::vector<LinearArgs> layers;
  for (int i = 0; i < 3; ++i) {
    products.push_back(std::make_unique<ModelProduct>(
        memory, ModelProductCase{.m = 32, .n = 48, .k = 64, .format = kBf16}));
    layers.push_back(products.back()->PrepareResults(*linear_));
  }
  // A layer of another kind is excluded.
  ModelProduct other(memory, {.m = 32, .n = 64, .k = 64, .format = kBf16});
  layers.push_back(other.PrepareResults(*linear_));
  fake_.num_other_weights = 0;
  ASSERT_TRUE(linear_->Tune(device_->stream(), layers).has_value());
  EXPECT_EQ(fake_.num_other_weights, fake_.num_products);
  EXPECT_EQ(linear_->Choose(layers[1]), LinearWay::kPlain);
  EXPECT_EQ(linear_->Choose(layers[3]), LinearWay::kOwn) << "it is not measured";
}

// Without a measurement, fast sums are never used, even if other ways are refused.
TEST_F(DeviceLinearTest, TakesNoFastSumsUnmeasured) {
  DeviceLinearOptions options = Options();
  options.fast_accumulation = true;
  Open(options);
  CaseMemory memory(*device_);
  ModelProduct product(memory, {.m = 66, .n = 48, .k = 64, .format = kF8});
  EXPECT_EQ(linear_->Choose(product.PrepareResults(*linear_)), LinearWay::kRowScales);
}

}  // namespace
}  // namespace sluice::device
