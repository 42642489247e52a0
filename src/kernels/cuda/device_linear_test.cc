#include "kernels/cuda/device_linear.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kernels/cuda/library_linear_testing.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/kernel_testing.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kUntouched = -77;

// Plain stand-ins for the kernels that DeviceLinear calls, which run when the queue is waited for.

constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// The value of a weight but for the scale of its row.
float CodeOf(const Weights& w, int64_t n, int64_t k) {
  const int64_t index = n * w.k + k;
  float value = 0;
  switch (w.type) {
    case ElementType::kBF16: value = ToFloat(static_cast<const BFloat16*>(w.codes)[index]); break;
    case ElementType::kF8E4M3:
      value = ToFloat(static_cast<const Float8E4M3*>(w.codes)[index]);
      break;
    case ElementType::kI8: value = static_cast<const int8_t*>(w.codes)[index]; break;
    case ElementType::kF4E2M1: {
      const int byte = static_cast<const uint8_t*>(w.codes)[index / 2];
      const int code = index % 2 == 0 ? byte & 15 : byte >> 4;
      value = code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7];
      break;
    }
    default: ADD_FAILURE() << "no type of weights";
  }
  const int64_t group = n * (w.k / std::max(w.group, 1)) + k / std::max(w.group, 1);
  switch (w.group_type) {
    case GroupScales::kNone: break;
    case GroupScales::kE4M3: {
      const int64_t at = NvF4ScaleRow(n, w.k / w.group) + NvF4ScaleGroup(k / w.group);
      value *= ToFloat(static_cast<const Float8E4M3*>(w.group_scales)[at]);
      break;
    }
    case GroupScales::kE8M0:
      value *= std::ldexp(1.0f, static_cast<const uint8_t*>(w.group_scales)[group] - 127);
      break;
    case GroupScales::kBlock: {
      const int64_t columns = (w.k + w.group - 1) / w.group;
      value *= static_cast<const float*>(w.group_scales)[n / w.block_rows * columns + k / w.group];
      break;
    }
  }
  return value;
}
float ValueOf(const Weights& w, int64_t n, int64_t k) {
  return CodeOf(w, n, k) * (w.row_scales == nullptr ? 1.0f : w.row_scales[n]);
}

float InputOf(const LinearArgs& args, int64_t m, int64_t k) {
  const int64_t index = m * args.w.k + k;
  const float value = args.x_type == ElementType::kBF16
                          ? ToFloat(static_cast<const BFloat16*>(args.x)[index])
                          : ToFloat(static_cast<const Float8E4M3*>(args.x)[index]);
  return value * (args.x_scales == nullptr ? 1.0f : args.x_scales[m]);
}

void StoreResult(void* y, ElementType type, int64_t index, float value) {
  if (type == ElementType::kF32)
    static_cast<float*>(y)[index] = value;
  else
    static_cast<BFloat16*>(y)[index] = ToBFloat16(value);
}
float LoadResult(const void* y, ElementType type, int64_t index) {
  return type == ElementType::kF32 ? static_cast<const float*>(y)[index]
                                   : ToFloat(static_cast<const BFloat16*>(y)[index]);
}

void Enqueue(const StreamHandle& stream, std::function<void()> work) {
  static_cast<EmulatedQueue*>(stream.native)->Enqueue(std::move(work));
}

void PlainLinear(const StreamHandle& stream, const LinearArgs& args) {
  Enqueue(stream, [args] {
    for (int64_t m = 0; m < args.m; ++m) {
      for (int64_t n = 0; n < args.w.n; ++n) {
        double sum = args.bias == nullptr ? 0 : static_cast<double>(args.bias[n]);
        for (int64_t k = 0; k < args.w.k; ++k)
          sum +=
              static_cast<double>(InputOf(args, m, k)) * static_cast<double>(ValueOf(args.w, n, k));
        StoreResult(args.y, args.y_type, m * args.y_stride + n, static_cast<float>(sum));
      }
    }
  });
}

void PlainExpand(const StreamHandle& stream, const ExpandWeightsArgs& args) {
  Enqueue(stream, [args] {
    for (int64_t row = 0; row < args.rows; ++row) {
      for (int64_t k = 0; k < args.w.k; ++k)
        args.out[row * args.w.k + k] = ToBFloat16(ValueOf(args.w, args.first_row + row, k)).bits;
    }
  });
}

// Of groups whose largest number is 6 times their scale.
void PlainPack(const StreamHandle& stream, const PackNvF4Args& args) {
  Enqueue(stream, [args] {
    const int64_t groups = args.cols / kNvF4Group;
    memset(args.scales, 0, static_cast<size_t>(NvF4ScaleBytes(args.rows, groups)));
    memset(args.codes, 0, static_cast<size_t>(args.rows * args.cols / 2));
    const auto value = [&](int64_t i) { return ToFloat(BFloat16{args.x[i]}); };
    for (int64_t i = 0; i < args.rows * args.cols; ++i) {
      const int64_t begin = i / kNvF4Group * kNvF4Group;
      float largest = 0;
      for (int64_t j = begin; j < begin + kNvF4Group; ++j)
        largest = std::max(largest, std::abs(value(j)));
      args.scales[NvF4ScaleRow(i / args.cols, groups) +
                  NvF4ScaleGroup(i % args.cols / kNvF4Group)] = ToFloat8E4M3(largest / 6).bits;
      const float* const code =
          std::find(kE2m1, std::end(kE2m1), std::abs(value(i)) / (largest / 6));
      ASSERT_NE(code, std::end(kE2m1));
      const auto bits = static_cast<uint8_t>(code - kE2m1 + (value(i) < 0 ? 8 : 0));
      args.codes[i / 2] |= static_cast<uint8_t>(bits << (i % 2 * 4));
    }
  });
}

void PlainScale(const StreamHandle& stream, const ScaleResultsArgs& args) {
  Enqueue(stream, [args] {
    for (int64_t m = 0; m < args.m; ++m) {
      for (int64_t n = 0; n < args.n; ++n) {
        const int64_t index = m * args.y_stride + n;
        float value = LoadResult(args.y, args.y_type, index);
        if (args.row_scales != nullptr) value *= args.row_scales[n];
        if (args.x_scales != nullptr) value *= args.x_scales[m];
        if (args.bias != nullptr) value += args.bias[n];
        StoreResult(args.y, args.y_type, index, value);
      }
    }
  });
}

enum class Kernels : uint8_t { kPlain, kEmulated };

DeviceKernels KernelsOf(Kernels kind) {
  DeviceKernels kernels{};
  const bool is_plain = kind == Kernels::kPlain;
  kernels.linear = is_plain ? PlainLinear : emulated::LaunchLinear;
  kernels.expand_weights = is_plain ? PlainExpand : emulated::LaunchExpandWeights;
  kernels.pack_nvf4 = is_plain ? PlainPack : emulated::LaunchPackNvF4;
  kernels.scale_results = is_plain ? PlainScale : emulated::LaunchScaleResults;
  return kernels;
}

// How a checkpoint stores weights.
struct Format {
  const char* name;
  ElementType codes;
  GroupScales groups;
  int group;
  bool row_scales;
  ElementType x_type;
  bool nvf4_inputs = false;
};
constexpr Format kBf16{"bf16", ElementType::kBF16, GroupScales::kNone, 0,
                       false,  ElementType::kBF16};
constexpr Format kF8{"f8", ElementType::kF8E4M3, GroupScales::kNone, 0, true, ElementType::kF8E4M3};
constexpr Format kNvF4{"nvfp4", ElementType::kF4E2M1, GroupScales::kE4M3, 16,
                       true,    ElementType::kBF16};
constexpr Format kNvF4Inputs{
    "nvfp4 x nvfp4", ElementType::kF4E2M1, GroupScales::kE4M3, 16, true, ElementType::kBF16, true};
constexpr Format kFormats[] = {
    kBf16,
    kF8,
    {"f8, bf16 inputs", ElementType::kF8E4M3, GroupScales::kNone, 0, true, ElementType::kBF16},
    {"f8 blocks", ElementType::kF8E4M3, GroupScales::kBlock, 32, false, ElementType::kBF16},
    {"i8", ElementType::kI8, GroupScales::kNone, 0, true, ElementType::kBF16},
    kNvF4,
    kNvF4Inputs,
    {"mxfp4", ElementType::kF4E2M1, GroupScales::kE8M0, 32, false, ElementType::kBF16},
};

int64_t CodeBytes(ElementType codes, int64_t count) {
  return codes == ElementType::kBF16     ? count * 2
         : codes == ElementType::kF4E2M1 ? count / 2
                                         : count;
}

// A product with random codes in the device's memory.
struct Problem {
  Problem(Device& device, const Format& format, int64_t m, int64_t n, int64_t k, ElementType y_type,
          bool has_bias)
      : random(11) {
    args.w = {.codes = nullptr,
              .type = format.codes,
              .group_scales = nullptr,
              .group_type = format.groups,
              .group = format.group,
              .block_rows = 32,
              .row_scales = nullptr,
              .n = n,
              .k = k};
    codes = format.codes == ElementType::kBF16
                ? BufferOf(device, kernels::ToBFloat16(random.Normal(n * k)))
                : Numbers(device, CodeBytes(format.codes, n * k));
    args.w.codes = codes.data();
    if (format.groups == GroupScales::kBlock)
      groups = BufferOf(device, Positive((n + 31) / 32 * ((k + format.group - 1) / format.group)));
    else if (format.groups == GroupScales::kE4M3)
      groups = NvF4Scales(device, n, k / format.group);
    else if (format.groups == GroupScales::kE8M0)
      groups = Bytes(device, n * k / format.group, 122, 130);
    args.w.group_scales = groups.data();
    if (format.row_scales) row_scales = BufferOf(device, Positive(n));
    args.w.row_scales = row_scales.As<float>();

    args.x_type = format.x_type;
    args.m = m;
    if (format.nvf4_inputs) {
      x = BufferOf(device, kernels::ToBFloat16(NvF4Rows(m * k)));
      x_scales = BufferOf(device, Positive(m));
    } else if (format.x_type == ElementType::kBF16) {
      x = BufferOf(device, kernels::ToBFloat16(random.Normal(m * k)));
    } else {
      x = Numbers(device, m * k);
      x_scales = BufferOf(device, Positive(m));
    }
    args.x = x.data();
    args.x_scales = x_scales.As<float>();
    if (has_bias) bias = BufferOf(device, random.Normal(n, 100.0f));
    args.bias = bias.As<float>();

    args.y_type = y_type;
    args.y_stride = (n + 15) / 16 * 16 + 16;
    const auto count = static_cast<size_t>(m * args.y_stride);
    y = y_type == ElementType::kF32
            ? BufferOf(device, std::vector<float>(count, kUntouched))
            : BufferOf(device, std::vector<BFloat16>(count, ToBFloat16(kUntouched)));
    args.y = y.data();
  }

  // Any code but E4M3's NaNs.
  DeviceBuffer Numbers(Device& device, int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) {
      const int64_t code = random.Integer(0, 0xFD);
      byte = static_cast<uint8_t>(code < 0x7F ? code : code + 1);
    }
    return BufferOf(device, bytes);
  }
  DeviceBuffer Bytes(Device& device, int64_t count, int64_t low, int64_t high) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Integer(low, high));
    return BufferOf(device, bytes);
  }
  DeviceBuffer NvF4Scales(Device& device, int64_t rows, int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(NvF4ScaleBytes(rows, count)));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t group = 0; group < count; ++group)
        bytes[static_cast<size_t>(NvF4ScaleRow(row, count) + NvF4ScaleGroup(group))] =
            static_cast<uint8_t>(random.Integer(0x28, 0x40));
    }
    return BufferOf(device, bytes);
  }
  std::vector<float> NvF4Rows(int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      const float scale = ToFloat(Float8E4M3{static_cast<uint8_t>(0x28 + i / 16 * 7 % 24)});
      const float code = kE2m1[i % 16 == 5 ? 7 : random.Integer(0, 7)];
      values.push_back((random.Integer(0, 1) == 0 ? code : -code) * scale);
    }
    return values;
  }
  std::vector<float> Positive(int64_t count) {
    std::vector<float> values = random.Normal(count);
    for (float& value : values) value = std::abs(value) + 0.1f;
    return values;
  }

  // `expanded`: the library had the weights in BF16, with the scales of rows for results in BF16.
  void ExpectResults(bool expanded) const {
    int num_wrong = 0;
    for (int64_t m = 0; m < args.m; ++m) {
      for (int64_t n = 0; n < args.y_stride; ++n) {
        const double found =
            static_cast<double>(LoadResult(args.y, args.y_type, m * args.y_stride + n));
        double expected = static_cast<double>(kUntouched), tolerance = 0;
        if (n < args.w.n) {
          double sum = 0, size = 0;
          for (int64_t k = 0; k < args.w.k; ++k) {
            float weight = ValueOf(args.w, n, k);
            const bool is_rounded =
                args.y_type == ElementType::kBF16 || args.w.row_scales == nullptr;
            if (expanded && is_rounded) weight = ToFloat(ToBFloat16(weight));
            const double term =
                static_cast<double>(InputOf(args, m, k)) * static_cast<double>(weight);
            sum += term;
            size += std::abs(term);
          }
          const double added = args.bias == nullptr ? 0 : static_cast<double>(args.bias[n]);
          expected = sum + added;
          // Results in BF16 are rounded up to twice: before and after scales and the bias.
          tolerance = size * 1e-6 + std::abs(added) * 1e-6;
          if (args.y_type == ElementType::kBF16)
            tolerance += (std::abs(sum) + std::abs(expected)) / 256;
        }
        if (!(std::abs(found - expected) <= tolerance) && ++num_wrong <= 3)
          ADD_FAILURE() << m << ", " << n << ": " << found << " instead of " << expected;
      }
    }
    EXPECT_EQ(num_wrong, 0);
  }

  kernels::Random random;
  DeviceBuffer codes, groups, row_scales, x, x_scales, bias, y;
  LinearArgs args{};
};

class DeviceLinearTest : public testing::TestWithParam<Kernels> {
 protected:
  static DeviceLinearOptions Options() {
    return {
        .workspace_bytes = 1 << 20, .expand_bytes = 128 * 64 * 2, .library = SLUICE_FAKE_CUBLASLT};
  }
  void Open(const DeviceLinearOptions& options = Options(), EmulatedDeviceOptions device = {}) {
    linear_.reset();
    stream_.reset();
    device_ = std::make_unique<ClockDevice>(device, &fake_.seconds);
    auto linear = DeviceLinear::Create(*device_, kernels_, options);
    ASSERT_TRUE(linear.has_value()) << linear.error().message;
    linear_ = *std::move(linear);
    stream_ = *device_->CreateStream();
  }
  // Runs the product in exactly the scratch that it asks for.
  void Run(Problem& problem) {
    constexpr int64_t kGuard = 256;
    const int64_t bytes = linear_->ScratchBytes(problem.args.w, problem.args.m);
    const DeviceBuffer scratch = *device_->Allocate(bytes + kGuard, "scratch");
    memset(scratch.As<uint8_t>() + bytes, 0x5A, kGuard);
    problem.args.scratch = scratch.data();
    linear_->Run(*stream_, problem.args);
    const Status status = stream_->Synchronize();
    ASSERT_TRUE(status.has_value()) << status.error().message;
    for (int64_t i = 0; i < kGuard; ++i)
      ASSERT_EQ(scratch.As<uint8_t>()[bytes + i], 0x5A) << "beyond the scratch";
  }

  FakeCublasLtState& fake_ = ResetFakeCublasLt();
  const DeviceKernels kernels_ = KernelsOf(GetParam());
  std::unique_ptr<ClockDevice> device_;
  std::unique_ptr<DeviceLinear> linear_;
  std::unique_ptr<DeviceStream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Kernels, DeviceLinearTest,
                         testing::Values(Kernels::kPlain, Kernels::kEmulated),
                         [](const testing::TestParamInfo<Kernels>& info) {
                           return info.param == Kernels::kPlain ? "Plain" : "Emulated";
                         });

bool IsExpanded(const Format& format) {
  return format.codes != ElementType::kBF16 && format.x_type != ElementType::kF8E4M3;
}

TEST_P(DeviceLinearTest, ServesEveryFormatByTheLibrary) {
  Open();
  EXPECT_THAT(linear_->library(), HasSubstr("cuBLASLt 13.0.2"));
  int64_t count = 0;
  for (const Format& format : kFormats) {
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      for (const bool has_bias : {false, true}) {
        // Three chunks of expanded weights, the last of them smaller.
        for (const int64_t n : {48, 304}) {
          SCOPED_TRACE(fmt::format("{}, y {}, bias {}, n {}", format.name, static_cast<int>(y_type),
                                   has_bias, n));
          Problem problem(*device_, format, 66, n, 64, y_type, has_bias);
          Run(problem);
          problem.ExpectResults(IsExpanded(format));
          EXPECT_EQ(linear_->counts().library, ++count) << fake_.complaint;
        }
      }
    }
  }
  EXPECT_EQ(linear_->counts().own, 0);
  EXPECT_EQ(linear_->counts().refused, 0);
}

TEST_P(DeviceLinearTest, ServesSmallStepsByOwnKernels) {
  Open();
  for (const Format& format : kFormats) {
    Problem problem(*device_, format, kMaxSkinnyRows, 32, 32, ElementType::kF32, true);
    Run(problem);
    problem.ExpectResults(false);
  }
  EXPECT_EQ(linear_->counts().own, static_cast<int64_t>(std::size(kFormats)));
  EXPECT_EQ(linear_->counts().refused, 0);
  EXPECT_EQ(fake_.num_products, 0);
  Problem nothing(*device_, kBf16, 0, 32, 32, ElementType::kF32, true);
  Run(nothing);
  EXPECT_EQ(linear_->counts().own, static_cast<int64_t>(std::size(kFormats)));
}

TEST_P(DeviceLinearTest, ScalesAfterwardsWhereTheLibraryDoesNot) {
  const auto expect_served = [&] {
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      Problem problem(*device_, kF8, 70, 48, 64, y_type, true);
      Run(problem);
      problem.ExpectResults(false);
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

TEST_P(DeviceLinearTest, ServesByOwnKernelsWhatTheLibraryRefuses) {
  Open();
  fake_.refuse_all = true;
  int64_t count = 0;
  for (const Format& format : kFormats) {
    for (int i = 0; i < 2; ++i) {
      Problem problem(*device_, format, 66, 48, 64, ElementType::kF32, true);
      Run(problem);
      problem.ExpectResults(false);
      EXPECT_EQ(linear_->counts().refused, ++count);
    }
  }
  EXPECT_EQ(linear_->counts().own, count);
  EXPECT_EQ(linear_->counts().library, 0);
  EXPECT_EQ(fake_.num_products, 0);
}

TEST_P(DeviceLinearTest, StartsNothingThatTheLibraryWillNotFinish) {
  Open();
  Problem problem(*device_, kFormats[4], 66, 304, 64, ElementType::kF32, true);
  fake_.refuse_rows = 304 - 2 * 128;  // of the last chunk
  Run(problem);
  problem.ExpectResults(false);
  EXPECT_EQ(linear_->counts().refused, 1);
  EXPECT_EQ(fake_.num_products, 0);
}

TEST_P(DeviceLinearTest, ServesE4m3ByOwnKernelsWhereTheLibraryCannot) {
  const auto expect_own = [&](int64_t n) {
    Problem problem(*device_, kF8, 66, n, 64, ElementType::kF32, false);
    Run(problem);
    problem.ExpectResults(false);
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

TEST_P(DeviceLinearTest, MultipliesNvF4ByNvF4AsTheyAreOnBlackwell) {
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
          Problem problem(*device_, kNvF4Inputs, m, n, k, y_type, has_bias);
          Run(problem);
          problem.ExpectResults(false);
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
  PlainScale(stream, args);
}

// One scale of W and one of x, told to the host, are the product's factor: its results are rounded
// once.
TEST_P(DeviceLinearTest, LeavesOneScaleToTheLibrary) {
  DeviceKernels kernels = kernels_;
  kernels.scale_results = CountScaling;
  for (const Format& format : {kNvF4Inputs, kF8}) {
    for (const bool is_told : {true, false}) {
      for (const bool has_bias : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, told {}, bias {}", format.name, is_told, has_bias));
        // E4M3 products take scales of rows on Hopper alone.
        device_ = std::make_unique<ClockDevice>(kBlackwell, &fake_.seconds);
        linear_ = *DeviceLinear::Create(*device_, kernels, Options());
        stream_ = *device_->CreateStream();
        Problem problem(*device_, format, 66, 48, 64, ElementType::kBF16, has_bias);
        std::fill_n(problem.row_scales.As<float>(), 48, 0.37f);
        std::fill_n(problem.x_scales.As<float>(), 66, 0.013f);
        if (is_told) {
          problem.args.w.same_row_scale = 0.37f;
          problem.args.same_x_scale = 0.013f;
        }
        num_scalings = 0;
        Run(problem);
        problem.ExpectResults(false);
        EXPECT_EQ(linear_->counts().library, 1) << fake_.complaint;
        EXPECT_EQ(num_scalings, is_told && !has_bias ? 0 : 1);
        linear_.reset();
      }
    }
  }
}

TEST_P(DeviceLinearTest, ExpandsNvF4WeightsWhereTheirInputsAreNot) {
  Open(Options(), kBlackwell);
  Problem problem(*device_, kNvF4, 66, 48, 64, ElementType::kF32, true);
  Run(problem);
  problem.ExpectResults(true);
  EXPECT_EQ(linear_->counts().library, 1);
  EXPECT_EQ(linear_->counts().nvf4, 0);
  EXPECT_EQ(linear_->counts().refused, 0);
}

// The same numbers go another way.
TEST_P(DeviceLinearTest, ExpandsNvF4WeightsWhereTheLibraryRefusesThem) {
  const auto expect_expanded = [&](int64_t n) {
    Problem problem(*device_, kNvF4Inputs, 66, n, 64, ElementType::kBF16, true);
    for (int i = 1; i <= 2; ++i) {
      Run(problem);
      problem.ExpectResults(true);
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

TEST_P(DeviceLinearTest, FailsTheStreamWhereTheLibraryFails) {
  Open();
  fake_.fail = true;
  for (const Format& format : {kFormats[0], kFormats[4]}) {
    Problem problem(*device_, format, 66, 48, 64, ElementType::kF32, true);
    const DeviceBuffer scratch =
        *device_->Allocate(linear_->ScratchBytes(problem.args.w, 66), "scratch");
    problem.args.scratch = scratch.data();
    linear_->Run(*stream_, problem.args);
    EXPECT_FALSE(stream_->Synchronize().has_value());
  }
}

TEST_P(DeviceLinearTest, UsesNoLibraryWhereItMustNot) {
  DeviceLinearOptions none = Options(), invariant = Options(), unnamed = Options();
  none.use_library = false;
  invariant.batch_invariant = true;
  unnamed.library.clear();  // the device is emulated
  for (const DeviceLinearOptions& options : {none, invariant, unnamed}) {
    Open(options);
    EXPECT_EQ(linear_->library(), "");
    EXPECT_THAT(linear_->TuningRows(8192), ElementsAre());
    Problem problem(*device_, kBf16, 66, 48, 64, ElementType::kF32, true);
    Run(problem);
    problem.ExpectResults(false);
    ASSERT_TRUE(linear_->Tune(*stream_, problem.args).has_value());
    linear_->SaveTactics();
    EXPECT_EQ(linear_->counts().own, 1);
    EXPECT_EQ(fake_.num_products, 0);
  }
}

TEST_P(DeviceLinearTest, RefusesWhatCannotBe) {
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

TEST_P(DeviceLinearTest, PlansTheScratchThatItTakes) {
  for (const EmulatedDeviceOptions& device : {kBlackwell, EmulatedDeviceOptions{}}) {
    Open(Options(), device);
    for (const Format& format : kFormats) {
      for (const int64_t n : {48, 128, 304, 1000}) {
        const Problem problem(*device_, format, 1, n, 64, ElementType::kF32, false);
        for (const int64_t m : {1, 64, 65, 4096}) {
          EXPECT_EQ(
              linear_->ScratchBytes(problem.args.w, m),
              DeviceLinear::PlannedScratchBytes(device_->info(), Options(), problem.args.w, m));
        }
      }
    }
  }
  // As if the library were there: 32 MiB for it, and half of 256 MiB of BF16 weights.
  DeviceInfo info = device_->info();
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

TEST_P(DeviceLinearTest, KeepsTacticsWhereItIsToldAndCan) {
  const auto file = std::filesystem::temp_directory_path() /
                    fmt::format("sluice-device-linear-{}.json", getpid());
  std::filesystem::remove(file);
  DeviceLinearOptions options = Options();
  for (const auto& path : {file, file / "below a file.json"}) {
    options.tactics = path;
    Open(options);
    Problem problem(*device_, kBf16, 128, 48, 64, ElementType::kF32, false);
    const DeviceBuffer scratch =
        *device_->Allocate(linear_->ScratchBytes(problem.args.w, 128), "scratch");
    problem.args.scratch = scratch.data();
    ASSERT_TRUE(linear_->Tune(*stream_, problem.args).has_value());
    linear_->SaveTactics();  // the second time into no folder: that is no reason to stop
    EXPECT_TRUE(std::filesystem::is_regular_file(file));
  }
  std::filesystem::remove(file);
}

TEST_P(DeviceLinearTest, TunesWhatItWillRun) {
  Open(Options(), kBlackwell);
  EXPECT_THAT(linear_->TuningRows(64), ElementsAre());
  EXPECT_THAT(linear_->TuningRows(100), ElementsAre(100));
  EXPECT_THAT(linear_->TuningRows(1000), ElementsAre(128, 256, 512, 1000));
  EXPECT_THAT(linear_->TuningRows(1024), ElementsAre(128, 256, 512, 1024));
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.name);
    const int64_t rows = linear_->TuningRows(100)[0];
    Problem problem(*device_, format, rows, 304, 64, ElementType::kF32, true);
    const DeviceBuffer scratch =
        *device_->Allocate(linear_->ScratchBytes(problem.args.w, rows), "scratch");
    problem.args.scratch = scratch.data();
    const Status status = linear_->Tune(*stream_, problem.args);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    const int64_t searches = fake_.num_searches;
    // Of another number of rows, but the same kind.
    Problem step(*device_, format, 90, 304, 64, ElementType::kF32, true);
    step.args.scratch = scratch.data();
    linear_->Run(*stream_, step.args);
    ASSERT_TRUE(stream_->Synchronize().has_value());
    step.ExpectResults(IsExpanded(format) && !format.nvf4_inputs);
    EXPECT_EQ(fake_.last_algorithm, kFakeFast);
    EXPECT_EQ(fake_.num_searches, searches);
  }
  EXPECT_EQ(linear_->counts().nvf4, 1);
}

}  // namespace
}  // namespace sluice::device
