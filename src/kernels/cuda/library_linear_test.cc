#include "kernels/cuda/library_linear.h"

#include <unistd.h>
#include <array>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/file.h"
#include "kernels/cuda/library_linear_testing.h"
#include "kernels/kernel_testing.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::device {
namespace {

constexpr int64_t kWorkspace = 1 << 20;
constexpr float kUntouched = -77;

class LibraryLinearTest : public ::testing::Test {
 protected:
  void Open(LibraryLinear::Options options = {.workspace_bytes = kWorkspace},
            EmulatedDeviceOptions device = {}) {
    library_.reset();
    stream_.reset();
    device_ = std::make_unique<ClockDevice>(device, &fake_.seconds);
    fake_.compute_capability = device_->info().compute_capability();
    options.library = SLUICE_FAKE_CUBLASLT;
    auto library = LibraryLinear::Create(*device_, options);
    ASSERT_TRUE(library.has_value()) << library.error().message;
    library_ = *std::move(library);
    stream_ = *device_->CreateStream();
  }

  FakeCublasLtState& fake_ = ResetFakeCublasLt();
  std::unique_ptr<ClockDevice> device_;
  std::unique_ptr<LibraryLinear> library_;
  std::unique_ptr<DeviceStream> stream_;
};

// A product with random numbers in device memory, and its results.
struct Problem {
  Problem(Device& device, int64_t m, int64_t n, int64_t k, ElementType type, ElementType y_type,
          int64_t y_stride, bool is_scaled)
      : m(m), n(n), k(k), y_stride(y_stride), y_type(y_type) {
    kernels::Random random(7);
    w_values = Rounded(random.Normal(n * k), type, w, device);
    x_values = Rounded(random.Normal(m * k), type, x, device);
    if (is_scaled) {
      for (const float value : random.Normal(n)) w_scale.push_back(std::abs(value));
      for (const float value : random.Normal(m)) x_scale.push_back(std::abs(value));
    }
    w_scales = BufferOf(device, w_scale);
    x_scales = BufferOf(device, x_scale);
    const auto count = static_cast<size_t>(m * y_stride);
    if (y_type == ElementType::kF32)
      y = BufferOf(device, std::vector<float>(count, kUntouched));
    else
      y = BufferOf(device, std::vector<BFloat16>(count, ToBFloat16(kUntouched)));
    workspace = *device.Allocate(kWorkspace, "workspace");
    product = {.m = m,
               .n = n,
               .k = k,
               .type = type,
               .y_type = y_type,
               .y_stride = y_stride,
               .w = w.data(),
               .x = x.data(),
               .y = y.data(),
               .w_scales = is_scaled ? w_scales.As<float>() : nullptr,
               .x_scales = is_scaled ? x_scales.As<float>() : nullptr,
               .workspace = workspace.data()};
  }

  static std::vector<float> Rounded(std::vector<float> values, ElementType type,
                                    DeviceBuffer& buffer, Device& device) {
    if (type == ElementType::kBF16) {
      buffer = BufferOf(device, kernels::ToBFloat16(values));
      return kernels::Rounded(values);
    }
    std::vector<Float8E4M3> codes;
    for (float& value : values) {
      codes.push_back(ToFloat8E4M3(value));
      value = ToFloat(codes.back());
    }
    buffer = BufferOf(device, codes);
    return values;
  }

  float At(int64_t row, int64_t column) const {
    const int64_t index = row * y_stride + column;
    return y_type == ElementType::kF32 ? y.As<float>()[index] : ToFloat(y.As<BFloat16>()[index]);
  }

  void ExpectProduct() const {
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < y_stride; ++column) {
        if (column >= n) {
          EXPECT_EQ(At(row, column), kUntouched) << row << ", " << column;
          continue;
        }
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double term = static_cast<double>(x_values[static_cast<size_t>(row * k + p)]) *
                              static_cast<double>(w_values[static_cast<size_t>(column * k + p)]);
          sum += term;
          size += std::abs(term);
        }
        if (!w_scale.empty()) {
          const double scale = static_cast<double>(w_scale[static_cast<size_t>(column)]) *
                               static_cast<double>(x_scale[static_cast<size_t>(row)]);
          sum *= scale;
          size *= scale;
        }
        const double tolerance =
            size * 1e-6 + (y_type == ElementType::kF32 ? 0 : std::abs(sum) / 256);
        EXPECT_NEAR(static_cast<double>(At(row, column)), sum, tolerance) << row << ", " << column;
      }
    }
  }

  int64_t m, n, k, y_stride;
  ElementType y_type;
  std::vector<float> w_values, x_values, w_scale, x_scale;
  DeviceBuffer w, x, w_scales, x_scales, y, workspace;
  LibraryProduct product;
};

TEST_F(LibraryLinearTest, MultipliesEveryType) {
  Open();
  ASSERT_TRUE(library_->HasRowScales());
  for (const ElementType type : {ElementType::kBF16, ElementType::kF8E4M3}) {
    for (const ElementType y_type : {ElementType::kF32, ElementType::kBF16}) {
      for (const bool is_scaled : {false, true}) {
        if (is_scaled && type == ElementType::kBF16) continue;
        for (const int64_t m : {1, 5, 16}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", static_cast<int>(type), static_cast<int>(y_type),
                                   is_scaled, m));
          Problem problem(*device_, m, 48, 32, type, y_type, 64, is_scaled);
          EXPECT_TRUE(library_->CanRun(problem.product));
          ASSERT_EQ(library_->Run(stream_->handle(), problem.product), LibraryOutcome::kEnqueued)
              << fake_.complaint;
          EXPECT_EQ(problem.At(0, 0), kUntouched) << "it ran before the stream was waited for";
          ASSERT_TRUE(stream_->Synchronize().has_value());
          problem.ExpectProduct();
        }
      }
    }
  }
}

TEST_F(LibraryLinearTest, TakesShapesThatTileNothing) {
  Open();
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{3, 5, 8}, {7, 1, 24}, {65, 33, 40}}) {
    Problem problem(*device_, m, n, k, ElementType::kBF16, ElementType::kF32, n, false);
    ASSERT_EQ(library_->Run(stream_->handle(), problem.product), LibraryOutcome::kEnqueued)
        << fake_.complaint;
    ASSERT_TRUE(stream_->Synchronize().has_value());
    problem.ExpectProduct();
  }
}

TEST_F(LibraryLinearTest, TakesRowsFromTheMiddleOfABuffer) {
  Open();
  Problem problem(*device_, 3, 16, 8, ElementType::kBF16, ElementType::kF32, 20, false);
  LibraryProduct product = problem.product;
  product.m = 2;
  product.x = problem.x.As<uint16_t>() + 8;  // 16 bytes after the start
  product.y = problem.y.As<float>() + 20;    // 80 bytes after the start
  ASSERT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kEnqueued)
      << fake_.complaint;
  product = problem.product;
  product.m = 1;
  ASSERT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kEnqueued);
  ASSERT_TRUE(stream_->Synchronize().has_value());
  problem.ExpectProduct();
}

TEST_F(LibraryLinearTest, RefusesWhatTensorCoresCannotRead) {
  Open();
  Problem problem(*device_, 4, 48, 32, ElementType::kBF16, ElementType::kF32, 48, false);
  const auto expect_refused = [&](const LibraryProduct& product) {
    EXPECT_FALSE(library_->CanRun(product));
    EXPECT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kRefused);
  };
  LibraryProduct product = problem.product;
  product.y = problem.y.As<float>() + 1;
  expect_refused(product);
  product = problem.product;
  product.x = problem.x.As<uint16_t>() + 1;
  expect_refused(product);
  product = problem.product;
  product.k = 28;
  expect_refused(product);
  Problem f8(*device_, 4, 40, 32, ElementType::kF8E4M3, ElementType::kF32, 40, false);
  expect_refused(f8.product);  // 40 rows of weights
  Problem stride(*device_, 4, 48, 32, ElementType::kF8E4M3, ElementType::kBF16, 51, false);
  expect_refused(stride.product);
  EXPECT_EQ(fake_.num_searches, 0);
  EXPECT_EQ(fake_.num_products, 0);
}

TEST_F(LibraryLinearTest, AsksOnceForEachKindOfProduct) {
  Open();
  for (int i = 0; i < 3; ++i) {
    for (const int64_t m : {40, 50, 64}) {  // all in one bucket
      Problem problem(*device_, m, 16, 16, ElementType::kBF16, ElementType::kF32, 16, false);
      ASSERT_EQ(library_->Run(stream_->handle(), problem.product), LibraryOutcome::kEnqueued);
      ASSERT_TRUE(stream_->Synchronize().has_value());
    }
  }
  EXPECT_EQ(fake_.num_searches, 1);
  EXPECT_EQ(fake_.num_products, 9);

  fake_.refuse_all = true;
  Problem other(*device_, 4, 32, 16, ElementType::kBF16, ElementType::kF32, 32, false);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(library_->Run(stream_->handle(), other.product), LibraryOutcome::kRefused);
  EXPECT_EQ(fake_.num_searches, 2);
}

TEST_F(LibraryLinearTest, NotesFailuresInTheStream) {
  Open();
  Problem problem(*device_, 4, 16, 16, ElementType::kBF16, ElementType::kF32, 16, false);
  fake_.fail = true;
  EXPECT_EQ(library_->Run(stream_->handle(), problem.product), LibraryOutcome::kFailed);
  const Status status = stream_->Synchronize();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("cublasLtMatmul"));
}

// The library's documentation names only 9.0. On 10.x, the library's own answer decides.
TEST_F(LibraryLinearTest, ScalesRowsWhereTheLibraryDoes) {
  const auto can_run = [&](int major, int minor, bool has_vectors) {
    fake_.outer_vectors_on_10 = has_vectors;
    Open({.workspace_bytes = kWorkspace}, {.compute_major = major, .compute_minor = minor});
    if (!library_->HasRowScales()) return false;
    Problem problem(*device_, 16, 48, 32, ElementType::kF8E4M3, ElementType::kBF16, 48, true);
    const bool can = library_->CanRun(problem.product);
    const LibraryOutcome outcome = library_->Run(stream_->handle(), problem.product);
    EXPECT_EQ(outcome, can ? LibraryOutcome::kEnqueued : LibraryOutcome::kRefused);
    EXPECT_TRUE(stream_->Synchronize().has_value());
    if (can) problem.ExpectProduct();
    return can;
  };
  EXPECT_TRUE(can_run(9, 0, false));
  EXPECT_FALSE(can_run(10, 0, false));
  EXPECT_TRUE(can_run(10, 0, true));
  EXPECT_TRUE(can_run(10, 3, true));
  EXPECT_FALSE(can_run(12, 0, true));
  EXPECT_FALSE(can_run(8, 9, true));
  fake_.version = 120800;
  Open();
  EXPECT_FALSE(library_->HasRowScales());
}

TEST_F(LibraryLinearTest, MultipliesNvF4OnBlackwellAlone) {
  Open();
  EXPECT_FALSE(library_->HasNvF4());
  for (const int major : {10, 12}) {
    Open({.workspace_bytes = kWorkspace}, {.compute_major = major});
    EXPECT_TRUE(library_->HasNvF4());
  }
  fake_.version = 120700;
  Open({.workspace_bytes = kWorkspace}, {.compute_major = 10});
  EXPECT_FALSE(library_->HasNvF4());
}

// The fake must refuse methods that the library's documentation does not list for a compute
// capability.
TEST_F(LibraryLinearTest, TheStandInRefusesWhatADeviceLacks) {
  const auto can_run = [&](int major, int minor, ElementType type) {
    Open({.workspace_bytes = kWorkspace}, {.compute_major = major, .compute_minor = minor});
    Problem problem(*device_, 16, 48, 32, type, ElementType::kF32, 48, false);
    return library_->CanRun(problem.product);
  };
  EXPECT_TRUE(can_run(8, 0, ElementType::kBF16));
  EXPECT_FALSE(can_run(7, 5, ElementType::kBF16));
  EXPECT_FALSE(can_run(8, 6, ElementType::kF8E4M3));
  EXPECT_TRUE(can_run(8, 9, ElementType::kF8E4M3));
  EXPECT_TRUE(can_run(12, 1, ElementType::kF8E4M3));
}

// Layers differ only in their addresses, including those of scales.
TEST_F(LibraryLinearTest, DescribesEachShapeOnce) {
  Open();
  const int64_t before = fake_.num_created;
  int64_t described = 0;
  for (const int64_t m : {16, 12}) {
    for (int layer = 0; layer < 3; ++layer) {
      Problem problem(*device_, m, 48, 32, ElementType::kF8E4M3, ElementType::kF32, 48, true);
      for (float& scale : problem.w_scale) scale *= static_cast<float>(layer + 1);
      problem.w_scales = BufferOf(*device_, problem.w_scale);
      problem.product.w_scales = problem.w_scales.data();
      EXPECT_TRUE(library_->CanRun(problem.product));
      ASSERT_EQ(library_->Run(stream_->handle(), problem.product), LibraryOutcome::kEnqueued);
      ASSERT_TRUE(stream_->Synchronize().has_value());
      problem.ExpectProduct();
      if (layer == 0) described = fake_.num_created;
      EXPECT_EQ(fake_.num_created, described) << "layer " << layer;
    }
  }
  EXPECT_EQ(described - before, 2 * 5) << "three layouts, an operation and a preference each";
}

TEST_F(LibraryLinearTest, KeepsWhatIsFastestAndRemembersIt) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("sluice-library-linear-{}.json", getpid());
  std::filesystem::remove(path);
  const LibraryLinear::Options options{.tactics = path, .workspace_bytes = kWorkspace};
  Open(options);
  const auto run = [&](int64_t m) {
    Problem problem(*device_, m, 16, 16, ElementType::kBF16, ElementType::kF32, 16, false);
    ASSERT_EQ(library_->Run(stream_->handle(), problem.product), LibraryOutcome::kEnqueued);
    ASSERT_TRUE(stream_->Synchronize().has_value());
    problem.ExpectProduct();
  };
  run(8);
  EXPECT_EQ(fake_.last_algorithm, kFakeSlow) << "what the library proposes first";
  {
    Problem problem(*device_, 8, 16, 16, ElementType::kBF16, ElementType::kF32, 16, false);
    ASSERT_TRUE(library_->Tune(*stream_, {&problem.product, 1}).has_value());
    const int64_t products = fake_.num_products;
    ASSERT_TRUE(library_->Tune(*stream_, {&problem.product, 1}).has_value());
    EXPECT_EQ(fake_.num_products, products) << "it is known already";
  }
  run(8);
  EXPECT_EQ(fake_.last_algorithm, kFakeFast);
  run(6);
  EXPECT_EQ(fake_.last_algorithm, kFakeFast) << "of the same kind";
  run(7);
  EXPECT_EQ(fake_.last_algorithm, kFakeSlow) << "the faster one does not take odd numbers";
  run(8);
  EXPECT_EQ(fake_.last_algorithm, kFakeFast) << "what was measured is not lost";
  ASSERT_TRUE(library_->tactics().Save().has_value());

  // A restart.
  Open(options);
  fake_.num_searches = 0;
  run(8);
  EXPECT_EQ(fake_.last_algorithm, kFakeFast);
  EXPECT_EQ(fake_.num_searches, 0);
  // A tactic that the library does not accept is ignored.
  std::string text = *ReadFile(path);
  const size_t word = text.find("736c7569");
  ASSERT_NE(word, std::string::npos);
  text.replace(word, 8, "00000000");
  std::ofstream(path) << text;
  Open(options);
  run(8);
  EXPECT_EQ(fake_.last_algorithm, kFakeSlow);
  std::filesystem::remove(path);
}

TEST_F(LibraryLinearTest, LeavesNothingBehind) {
  Open();
  Problem problem(*device_, 4, 16, 16, ElementType::kF8E4M3, ElementType::kF32, 16, true);
  library_->Run(stream_->handle(), problem.product);
  ASSERT_TRUE(stream_->Synchronize().has_value());
  EXPECT_EQ(fake_.num_records, 1 + 5);  // the handle, and the records that describe a shape
  library_.reset();
  EXPECT_EQ(fake_.num_records, 0);
}

// The fake must not accept products that the real library refuses.
TEST_F(LibraryLinearTest, TheStandInRefusesIncompleteProducts) {
  using namespace cublaslt;  // NOLINT
  const auto opened = CublasLtLibrary::Open(SLUICE_FAKE_CUBLASLT);
  ASSERT_TRUE(opened.has_value());
  const Functions& f = (*opened)->functions();
  Handle handle;
  Layout a, b, d;
  Operation operation;
  Preference preference;
  ASSERT_EQ(f.create(&handle), kSuccess);
  ASSERT_EQ(f.layout_create(&a, kTypeBF16, 16, 8, 16), kSuccess);
  ASSERT_EQ(f.layout_create(&b, kTypeBF16, 16, 4, 16), kSuccess);
  ASSERT_EQ(f.layout_create(&d, kTypeF32, 8, 4, 8), kSuccess);
  ASSERT_EQ(f.operation_create(&operation, kComputeF32, kTypeF32), kSuccess);
  ASSERT_EQ(f.preference_create(&preference), kSuccess);
  Heuristic result{};
  int count = 0;
  const auto search = [&](Layout first) {
    return f.find_algorithms(handle, operation, first, b, d, d, preference, 1, &result, &count);
  };
  EXPECT_EQ(search(a), kInvalidValue) << "A is not transposed";
  int32_t transposed = kTransposed;
  EXPECT_EQ(f.operation_set(operation, kTransposeA, &transposed, 8), kInvalidValue);
  ASSERT_EQ(f.operation_set(operation, kTransposeA, &transposed, 4), kSuccess);
  EXPECT_EQ(search(a), kSuccess);
  EXPECT_EQ(search(b), kInvalidValue) << "shapes that do not meet";

  alignas(256) uint16_t x[16 * 8] = {};
  alignas(256) float y[8 * 4] = {};
  EmulatedQueue queue;
  const float one = 1, zero = 0;
  const auto multiply = [&](const void* first) {
    return f.multiply(handle, operation, &one, first, a, x, b, &zero, y, d, y, d, &result.algorithm,
                      nullptr, 0, &queue);
  };
  // Unless alignments are set, the library may choose an algorithm that needs 256 bytes.
  EXPECT_EQ(multiply(x + 8), kInvalidValue);
  EXPECT_EQ(multiply(x), kSuccess);
  result.algorithm.data[0] = 0;
  EXPECT_EQ(multiply(x), kInvalidValue) << "not an algorithm";
  f.preference_destroy(preference);
  f.operation_destroy(operation);
  for (const Layout layout : {a, b, d}) f.layout_destroy(layout);
  f.destroy(handle);
}

// E2M1: the fake must refuse arguments that would give wrong results, such as scales for another
// size.
TEST_F(LibraryLinearTest, TheStandInRefusesE2m1WithoutItsScales) {
  using namespace cublaslt;  // NOLINT
  fake_.compute_capability = 100;
  const auto opened = CublasLtLibrary::Open(SLUICE_FAKE_CUBLASLT);
  ASSERT_TRUE(opened.has_value());
  const Functions& f = (*opened)->functions();
  Handle handle;
  Layout a, b, odd, d;
  Operation operation;
  Preference preference;
  ASSERT_EQ(f.create(&handle), kSuccess);
  ASSERT_EQ(f.layout_create(&a, kTypeE2M1, 32, 16, 32), kSuccess);
  ASSERT_EQ(f.layout_create(&b, kTypeE2M1, 32, 4, 32), kSuccess);
  ASSERT_EQ(f.layout_create(&odd, kTypeE2M1, 32, 16, 40), kSuccess);
  ASSERT_EQ(f.layout_create(&d, kTypeF32, 16, 4, 16), kSuccess);
  ASSERT_EQ(f.operation_create(&operation, kComputeF32, kTypeF32), kSuccess);
  ASSERT_EQ(f.preference_create(&preference), kSuccess);
  Heuristic result{};
  int count = 0;
  const auto search = [&](Layout first) {
    return f.find_algorithms(handle, operation, first, b, d, d, preference, 1, &result, &count);
  };
  const auto set = [&](int attribute, auto value) {
    EXPECT_EQ(f.operation_set(operation, attribute, &value, sizeof(value)), kSuccess);
  };
  set(kTransposeA, kTransposed);
  alignas(256) uint8_t scales[512] = {}, x[256] = {};
  alignas(256) float y[16 * 4] = {};
  set(kScalePointerA, static_cast<const void*>(scales));
  set(kScalePointerB, static_cast<const void*>(scales));
  EXPECT_EQ(search(a), kNotSupported) << "one scale for each matrix";
  set(kScaleModeA, kScaleGroups16);
  EXPECT_EQ(search(a), kNotSupported) << "scale modes that differ";
  set(kScaleModeB, kScaleGroups16);
  EXPECT_EQ(search(a), kSuccess) << fake_.complaint;
  fake_.compute_capability = 90;
  EXPECT_EQ(search(a), kArchMismatch) << "Hopper";
  fake_.compute_capability = 100;
  EXPECT_EQ(search(odd), kInvalidValue) << "rows that are no multiples of 16 bytes";
  set(kScalePointerB, static_cast<const void*>(scales + 8));
  EXPECT_EQ(search(a), kInvalidValue) << "scales that are not aligned";
  set(kScalePointerB, static_cast<const void*>(nullptr));
  EXPECT_EQ(search(a), kInvalidValue) << "no scales";
  set(kScalePointerB, static_cast<const void*>(scales));
  set(kFastAccumulation, int8_t{1});
  EXPECT_EQ(search(a), kInvalidValue) << "fast accumulation";
  set(kFastAccumulation, int8_t{0});

  // The fake's results are NaN unless the padding of a tile of scales is zero. Row 20 is padding:
  // the matrix has 16 rows.
  const float one = 1, zero = 0;
  for (const bool is_filled : {false, true}) {
    scales[20 * 16] = is_filled ? 0x38 : 0;
    EmulatedQueue queue;
    ASSERT_EQ(search(a), kSuccess);
    ASSERT_EQ(f.multiply(handle, operation, &one, x, a, x, b, &zero, y, d, y, d, &result.algorithm,
                         nullptr, 0, &queue),
              kSuccess)
        << fake_.complaint;
    queue.RunAll();
    EXPECT_EQ(std::isnan(y[0]), is_filled);
  }
  f.preference_destroy(preference);
  f.operation_destroy(operation);
  for (const Layout layout : {a, b, odd, d}) f.layout_destroy(layout);
  f.destroy(handle);
}

}  // namespace
}  // namespace sluice::device
