// Tests products by hipBLASLt, with the fake library.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"
#include "fake_hip/open_machine.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/device_linear.h"
#include "kernels/cuda/hipblaslt_library.h"
#include "kernels/cuda/library_linear.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::device {
namespace {

using fake_hip::TheMachine;
using testing::HasSubstr;

constexpr int64_t kWorkspace = 1 << 20;
constexpr int64_t kN = 48, kK = 32;  // shape of W

// Small integers and powers of two, so that sums are exact in any order.
float WNumber(int64_t row, int64_t i) {
  return static_cast<float>((row * 3 + i * 5) % 7 - 3);
}
float XNumber(int64_t row, int64_t i) {
  return static_cast<float>((row * 2 + i) % 5 - 2);
}
float WScale(int64_t row) {
  return static_cast<float>(1 << row % 3);
}
float XScale(int64_t row) {
  return row % 2 == 0 ? 0.5f : 2.0f;
}

class HipBlasLtTest : public testing::Test {
 protected:
  HipBlasLtTest() {
    fake_hip::Machine fresh;
    fresh.num_modules = TheMachine().num_modules;
    TheMachine() = fresh;
  }
  ~HipBlasLtTest() override {
    buffers_.clear();
    library_.reset();
    stream_.reset();
    device_.reset();
    EXPECT_EQ(TheMachine().num_alive, 0);
    EXPECT_EQ(TheMachine().num_records, 0);
  }

  void Open() {
    auto device = OpenDevice(DeviceKind::kHip, 1);
    ASSERT_TRUE(device) << device.error().message;
    device_ = *std::move(device);
    stream_ = *device_->CreateStream();
    auto library = LibraryLinear::Create(*device_, {.workspace_bytes = kWorkspace});
    ASSERT_TRUE(library) << library.error().message;
    library_ = *std::move(library);
  }

  template <typename T>
  void* Upload(const std::vector<T>& values) {
    buffers_.push_back(
        *device_->Allocate(static_cast<int64_t>(values.size() * sizeof(T)), "a test's numbers"));
    void* const data = buffers_.back().data();
    stream_->CopyToDevice(data, values.data(), buffers_.back().size_bytes());
    EXPECT_TRUE(stream_->Synchronize());
    return data;
  }
  void* UploadNumbers(ElementType type, int64_t rows, float (*number)(int64_t, int64_t)) {
    std::vector<BFloat16> wide;
    std::vector<Float8E4M3> codes;
    for (int64_t i = 0; i < rows * kK; ++i) {
      wide.push_back(ToBFloat16(number(i / kK, i % kK)));
      codes.push_back(ToFloat8E4M3(number(i / kK, i % kK)));
    }
    return type == ElementType::kBF16 ? Upload(wide) : Upload(codes);
  }
  LibraryProduct ProductOf(ElementType type, int64_t m, bool is_scaled = false) {
    LibraryProduct product{.m = m, .n = kN, .k = kK, .type = type};
    product.y_type = ElementType::kF32;
    product.y_stride = kN + 16;
    product.w = UploadNumbers(type, kN, WNumber);
    product.x = UploadNumbers(type, m, XNumber);
    product.y = Upload(std::vector<float>(static_cast<size_t>(m * product.y_stride), -77));
    product.workspace = Upload(std::vector<char>(kWorkspace));
    if (!is_scaled) return product;
    std::vector<float> w_scales, x_scales;
    for (int64_t n = 0; n < kN; ++n) w_scales.push_back(WScale(n));
    for (int64_t row = 0; row < m; ++row) x_scales.push_back(XScale(row));
    product.w_scales = Upload(w_scales);
    product.x_scales = Upload(x_scales);
    return product;
  }
  // Reads y back and compares it with the product, computed in float.
  void ExpectResults(const LibraryProduct& product) {
    std::vector<float> y(static_cast<size_t>(product.m * product.y_stride));
    stream_->CopyToHost(y.data(), product.y, static_cast<int64_t>(y.size() * sizeof(float)));
    ASSERT_TRUE(stream_->Synchronize());
    for (int64_t row = 0; row < product.m; ++row) {
      for (int64_t column = 0; column < product.y_stride; ++column) {
        float sum = 0;
        for (int64_t i = 0; i < kK; ++i) sum += XNumber(row, i) * WNumber(column, i);
        if (product.w_scales != nullptr) sum *= XScale(row) * WScale(column);
        EXPECT_EQ(y[static_cast<size_t>(row * product.y_stride + column)],
                  column < kN ? sum * product.factor : -77)
            << row << ", " << column;
      }
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<LibraryLinear> library_;
  std::vector<DeviceBuffer> buffers_;
};

TEST_F(HipBlasLtTest, MultipliesBf16AndE4m3WithScalesOfRows) {
  Open();
  EXPECT_EQ(library_->Describe(), fmt::format("hipBLASLt 1.2.0 ({})", SLUICE_FAKE_HIP_LIBRARY));
  EXPECT_TRUE(library_->HasRowScales());
  EXPECT_FALSE(library_->HasNvF4());
  // Five rows share a bucket with eight rows, but use its algorithm only if the library proposes it
  // for five rows.
  for (const int64_t m : {8, 5, 6, 64}) {
    for (const bool is_scaled : {false, true}) {
      SCOPED_TRACE(fmt::format("{} rows, scaled: {}", m, is_scaled));
      LibraryProduct product = ProductOf(ElementType::kF8E4M3, m, is_scaled);
      product.factor = 0.25f;
      EXPECT_TRUE(library_->CanRun(product));
      ASSERT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kEnqueued)
          << TheMachine().complaint;
      ExpectResults(product);
    }
    LibraryProduct product = ProductOf(ElementType::kBF16, m);
    ASSERT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kEnqueued)
        << TheMachine().complaint;
    ExpectResults(product);
  }
  EXPECT_EQ(TheMachine().num_products, 12);
}

TEST_F(HipBlasLtTest, IsRecordedInGraphs) {
  Open();
  const LibraryProduct product = ProductOf(ElementType::kBF16, 16);
  ASSERT_TRUE(library_->CanRun(product));
  ASSERT_TRUE(stream_->BeginCapture());
  ASSERT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kEnqueued);
  auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(TheMachine().num_products, 0);
  stream_->Replay(**graph);
  ExpectResults(product);
  EXPECT_EQ(TheMachine().num_products, 1);
}

TEST_F(HipBlasLtTest, HasNoFastAccumulation) {
  Open();
  LibraryProduct product = ProductOf(ElementType::kF8E4M3, 8);
  product.fast_accumulation = true;
  EXPECT_FALSE(library_->CanRun(product));
  EXPECT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kRefused);
}

TEST_F(HipBlasLtTest, RefusesAndFailsByName) {
  Open();
  const LibraryProduct product = ProductOf(ElementType::kBF16, 8);
  TheMachine().next_product = 5;
  EXPECT_EQ(library_->Run(stream_->handle(), product), LibraryOutcome::kFailed);
  const auto failed = stream_->Synchronize();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("hipblasLtMatmul"));
  TheMachine().refuses_products = true;
  EXPECT_FALSE(library_->CanRun(ProductOf(ElementType::kBF16, 24)));
}

TEST_F(HipBlasLtTest, SaysWhenItDoesNotStart) {
  auto device = OpenDevice(DeviceKind::kHip, 0);
  ASSERT_TRUE(device) << device.error().message;
  ASSERT_TRUE(hipblaslt::Open());
  TheMachine().next_handle = 2;
  const auto library = LibraryLinear::Create(**device, {.workspace_bytes = kWorkspace});
  ASSERT_FALSE(library);
  EXPECT_THAT(library.error().message,
              testing::AllOf(HasSubstr("does not start on Fake MI355X 0"),
                             HasSubstr("HIPBLAS_STATUS_ALLOC_FAILED"), HasSubstr("newer ROCm")));
}

// gfx942 has a different FP8 format, so its library would misread E4M3 codes.
TEST_F(HipBlasLtTest, MultipliesNoE4m3OnGfx942) {
  for (const char* architecture : {"gfx942", "gfx950"}) {
    TheMachine().architecture = architecture;
    auto device = OpenDevice(DeviceKind::kHip, 0);
    ASSERT_TRUE(device) << device.error().message;
    const auto products =
        DeviceLinear::Create(**device, KernelsOf(DeviceKind::kHip), {.fast_accumulation = true});
    ASSERT_TRUE(products) << products.error().message;
    EXPECT_THAT((*products)->library(), HasSubstr("hipBLASLt"));
    LinearArgs args = {};
    args.m = 64;
    args.w.n = kN;
    args.w.k = kK;
    args.w.type = ElementType::kF8E4M3;
    args.x_type = ElementType::kF8E4M3;
    const LinearWays ways = (*products)->WaysOf(args);
    EXPECT_EQ(ways.Has(LinearWay::kPlain), TheMachine().architecture == "gfx950");
    EXPECT_FALSE(ways.Has(LinearWay::kFastPlain));
    args.x_type = ElementType::kBF16;
    EXPECT_TRUE((*products)->WaysOf(args).Has(LinearWay::kExpanded));
  }
}

}  // namespace
}  // namespace sluice::device
