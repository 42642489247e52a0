// Copies of tiles by tensor maps (TMA) and matrix products of warpgroups (wgmma): a kernel whose
// producer and consumers pass stages through shared memory, in several shapes, and the same kernel
// with faults that the interpreter must find.
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/plain_tensor_map.h"
#include "ptx_machine.h"

namespace sluice::ptx {
namespace {

using device::TensorMap;
using device::TensorSwizzle;

struct Shape {
  unsigned columns = 16;  // of the result: rows of b
  unsigned span = 128;    // bytes of a row in a stage
  bool is_bf16 = false;
  unsigned stages = 5;
  uint64_t rows = 64;    // of a; the tile has 64
  uint64_t missing = 0;  // numbers by which k is shorter than the stages
  bool is_3d = false;    // the copies have a third dimension, of size 1
  unsigned bytes_of_number() const { return is_bf16 ? 2 : 1; }
  unsigned stage_k() const { return span / bytes_of_number(); }
  uint64_t k() const { return uint64_t{stages} * stage_k() - missing; }
};

struct Args {
  TensorMap a, b;
  float* out;  // [64, columns]
};

void Replace(std::string& text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string Numbered(const char* format, unsigned i) {
  char text[200];
  snprintf(text, sizeof(text), format, i, i);
  return text;
}

// Slots of 64 KiB, two of them: a, and b 8 KiB behind it. Then the mbarriers of full slots and
// those of empty ones.
constexpr unsigned kSharedBytes = 2 * 65536 + 64;
std::string KernelOf(const Shape& shape) {
  std::string text = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry product(
.param .align 64 .b8 product_param_0[320]
)
{
.reg .pred %p<8>;
.reg .f32 %f<256>;
.reg .b32 %r<32>;
.reg .b64 %rd<32>;
mov.b64 %rd1, product_param_0;
cvta.param.u64 %rd2, %rd1;
add.s64 %rd3, %rd2, 128;
ld.param.u64 %rd4, [product_param_0+256];
mov.u32 %r1, %tid.x;
mov.u32 %r2, memory;
setp.ne.u32 %p1, %r1, 128;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r2+131072], 1;
mbarrier.init.shared::cta.b64 [%r2+131080], 1;
mbarrier.init.shared::cta.b64 [%r2+131088], 4;
mbarrier.init.shared::cta.b64 [%r2+131096], 4;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
mov.u32 %r4, 0;
shr.u32 %r3, %r1, 5;
setp.lt.u32 %p2, %r3, 4;
@%p2 bra CONSUMER;
@%p1 bra END;
PRODUCER:
and.b32 %r5, %r4, 1;
shr.u32 %r6, %r4, 1;
and.b32 %r7, %r6, 1;
xor.b32 %r7, %r7, 1;
shl.b32 %r8, %r5, 3;
add.s32 %r8, %r8, %r2;
EMPTY:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r8+131088], %r7;
@!%p3 bra EMPTY;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8+131072], EXPECTED;
shl.b32 %r9, %r5, 16;
add.s32 %r9, %r9, %r2;
mul.lo.s32 %r10, %r4, STAGE_K;
mov.u32 %r11, 0;
COPY [%r9], [%rd2, {%r10, %r11}], [%r8+131072];
COPY [%r9+8192], [%rd3, {%r10, %r11}], [%r8+131072];
add.s32 %r4, %r4, 1;
setp.lt.u32 %p4, %r4, STAGES;
@%p4 bra PRODUCER;
bra END;
CONSUMER:
ZEROS
NEXT:
and.b32 %r5, %r4, 1;
shr.u32 %r6, %r4, 1;
and.b32 %r7, %r6, 1;
shl.b32 %r8, %r5, 3;
add.s32 %r8, %r8, %r2;
FULL:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r8+131072], %r7;
@!%p3 bra FULL;
shl.b32 %r9, %r5, 16;
add.s32 %r9, %r9, %r2;
shr.u32 %r12, %r9, 4;
cvt.u64.u32 %rd10, %r12;
or.b64 %rd11, %rd10, DESCRIPTOR;
add.s64 %rd12, %rd11, 512;
setp.eq.u32 %p6, %r1, %r1;
wgmma.fence.sync.aligned;
PRODUCTS
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
and.b32 %r13, %r1, 31;
setp.eq.u32 %p5, %r13, 0;
@%p5 mbarrier.arrive.shared::cta.b64 _, [%r8+131088];
add.s32 %r4, %r4, 1;
setp.lt.u32 %p4, %r4, STAGES;
@%p4 bra NEXT;
and.b32 %r13, %r1, 31;
shr.u32 %r14, %r13, 2;
shl.b32 %r15, %r3, 4;
add.s32 %r14, %r14, %r15;
mul.lo.s32 %r14, %r14, ROW_BYTES;
and.b32 %r15, %r13, 3;
shl.b32 %r15, %r15, 3;
add.s32 %r14, %r14, %r15;
cvt.u64.u32 %rd13, %r14;
add.s64 %rd13, %rd13, %rd4;
STORES
END:
ret;
}
)";
  std::string zeros, products, stores, registers;
  for (unsigned i = 0; i < shape.columns / 2; ++i) {
    zeros += Numbered("mov.f32 %%f%u, 0f00000000;\n", i);
    registers += (i > 0 ? ",%f" : "%f") + std::to_string(i);
    const unsigned row_bytes = shape.columns * 4;
    const unsigned place = i / 4 * 32 + i % 2 * 4 + i / 2 % 2 * 8 * row_bytes;
    stores += "st.global.f32 [%rd13+" + std::to_string(place) + "], %f" + std::to_string(i) + ";\n";
  }
  for (unsigned slice = 0; slice < shape.span / 32; ++slice) {
    products += Numbered("add.s64 %%rd20, %%rd11, %u;\nadd.s64 %%rd21, %%rd12, %u;\n", slice * 2);
    products += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.columns) +
                (shape.is_bf16 ? "k16.f32.bf16.bf16" : "k32.f32.e4m3.e4m3") + " {" + registers +
                "}, %rd20, %rd21, %p6, 1, 1" + (shape.is_bf16 ? ", 0, 0;\n" : ";\n");
  }
  const uint64_t mode = shape.span == 128 ? 1 : shape.span == 64 ? 2 : 3;
  Replace(text, "ZEROS", zeros);
  Replace(text, "PRODUCTS", products);
  Replace(text, "STORES", stores);
  Replace(text, "STAGES", std::to_string(shape.stages));
  Replace(text, "STAGE_K", std::to_string(shape.stage_k()));
  Replace(text, "ROW_BYTES", std::to_string(shape.columns * 4));
  Replace(text, "EXPECTED", std::to_string((64 + shape.columns) * shape.span));
  Replace(text, "DESCRIPTOR", std::to_string(uint64_t{8 * shape.span / 16} << 32 | mode << 62));
  Replace(text, "COPY",
          std::string("cp.async.bulk.tensor.") + (shape.is_3d ? "3d" : "2d") +
              ".shared::cluster.global.mbarrier::complete_tx::bytes");
  if (shape.is_3d) Replace(text, ", %r11}", ", %r11, %r11}");
  return text;
}

// A small integer, which both formats represent.
int NumberAt(uint64_t row, uint64_t k, unsigned seed) {
  return static_cast<int>((row * 31 + k * 7 + row * k * 3 + seed) % 9) - 4;
}
std::vector<unsigned char> Matrix(const Shape& shape, uint64_t rows, unsigned seed) {
  static const unsigned char kE4m3[] = {0, 0x38, 0x40, 0x44, 0x48};
  const unsigned bytes = shape.bytes_of_number();
  std::vector<unsigned char> matrix(rows * shape.k() * bytes + 16);
  for (uint64_t i = 0; i < rows * shape.k(); ++i) {
    const int number = NumberAt(i / shape.k(), i % shape.k(), seed);
    if (shape.is_bf16) {
      const auto code =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(number)) >> 16);
      memcpy(matrix.data() + i * 2, &code, 2);
    } else {
      matrix[i] = static_cast<unsigned char>(kE4m3[std::abs(number)] | (number < 0 ? 0x80 : 0));
    }
  }
  return matrix;
}

void Describe(TensorMap& map, const Shape& shape, std::vector<unsigned char>& matrix, uint64_t rows,
              unsigned box_rows, TensorSwizzle swizzle) {
  auto* address =
      std::bit_cast<unsigned char*>((std::bit_cast<uint64_t>(matrix.data()) + 15) / 16 * 16);
  if (address != matrix.data()) memmove(address, matrix.data(), matrix.size() - 16);
  const uint64_t row_bytes = shape.k() * shape.bytes_of_number();
  const uint64_t sizes[] = {shape.k(), rows, 1}, strides[] = {row_bytes, row_bytes * rows};
  const uint32_t box[] = {shape.stage_k(), box_rows, 1}, ones[] = {1, 1, 1};
  EXPECT_EQ(
      device::EncodePlainTensorMap(&map, shape.is_bf16 ? 9 : 0, shape.is_3d ? 3 : 2, address, sizes,
                                   strides, box, ones, 0, static_cast<int>(swizzle), 2, 0),
      0);
}

TensorSwizzle SwizzleOf(unsigned span) {
  return span == 128 ? TensorSwizzle::k128 : span == 64 ? TensorSwizzle::k64 : TensorSwizzle::k32;
}

std::vector<float> RunKernel(const Shape& shape, const std::string& text, TensorSwizzle swizzle,
                             uint32_t most_products = ~0u) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("sluice-ptx-product-" + std::to_string(getpid()) + ".ptx");
  std::ofstream(path) << text;
  Program program;
  ReadFile(path, program);
  std::filesystem::remove(path);
  std::vector<unsigned char> a = Matrix(shape, shape.rows, 1), b = Matrix(shape, shape.columns, 5);
  std::vector<float> out(size_t{64} * shape.columns, -1);
  static Args args;
  Describe(args.a, shape, a, shape.rows, 64, swizzle);
  Describe(args.b, shape, b, shape.columns, shape.columns, swizzle);
  args.out = out.data();
  Machine machine;
  machine.LimitE4m3Sums(most_products);
  machine.Run(program.kernels.at("product"), {}, 160, kSharedBytes, &args, sizeof(args));
  return out;
}
std::vector<float> RunKernel(const Shape& shape, const std::string& text) {
  return RunKernel(shape, text, SwizzleOf(shape.span));
}

std::vector<float> Expected(const Shape& shape) {
  std::vector<float> out;
  for (uint64_t row = 0; row < 64; ++row) {
    for (uint64_t column = 0; column < shape.columns; ++column) {
      int sum = 0;
      for (uint64_t k = 0; row < shape.rows && k < shape.k(); ++k)
        sum += NumberAt(row, k, 1) * NumberAt(column, k, 5);
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

TEST(PtxProductsTest, TilesOfAllShapesAreMultiplied) {
  for (const Shape& shape : {Shape{}, Shape{.columns = 8}, Shape{.columns = 256},
                             Shape{.columns = 24, .span = 64}, Shape{.columns = 64, .span = 32},
                             Shape{.is_bf16 = true}, Shape{.span = 64, .is_bf16 = true},
                             Shape{.columns = 128, .span = 32, .is_bf16 = true, .is_3d = true}})
    EXPECT_EQ(RunKernel(shape, KernelOf(shape)), Expected(shape)) << shape.columns << shape.span;
}

TEST(PtxProductsTest, TilesBeyondAMatrixAreFilledWithZeros) {
  for (const Shape& shape : {Shape{.rows = 50, .missing = 48}, Shape{.rows = 1, .missing = 16},
                             Shape{.is_bf16 = true, .rows = 33, .missing = 8}})
    EXPECT_EQ(RunKernel(shape, KernelOf(shape)), Expected(shape));
}

std::string With(std::string text, const std::string& piece, const std::string& instead) {
  Replace(text, piece, instead);
  return text;
}
#define EXPECT_FOUND(text, message) \
  EXPECT_EXIT(RunKernel({}, text), ::testing::ExitedWithCode(1), message)

const char* const kWait = "wgmma.wait_group.sync.aligned 0;\n";
const char* const kArrive = "@%p5 mbarrier.arrive.shared::cta.b64 _, [%r8+131088];\n";
const char* const kLane = "and.b32 %r13, %r1, 31;\nsetp.eq.u32 %p5, %r13, 0;\n";

TEST(PtxProductsTest, AWrongSwizzleIsFound) {
  const Shape shape;
  const std::string right = KernelOf(shape);
  EXPECT_NE(RunKernel(shape, right, TensorSwizzle::kNone), Expected(shape));
  // The same matrix as if it were not swizzled: pieces of 16 bytes beside each other.
  const auto descriptor = [](uint64_t along, uint64_t across, uint64_t mode) {
    return std::to_string(along << 16 | across << 32 | mode << 62);
  };
  const std::string old = descriptor(0, 64, 1);
  EXPECT_NE(RunKernel(shape, With(right, old, descriptor(8, 64, 0))), Expected(shape));
  EXPECT_NE(RunKernel(shape, With(right, old, descriptor(0, 32, 1))), Expected(shape))
      << "the rows of another group of eight";
  EXPECT_FOUND(With(right, old, descriptor(0, 64, 2)), "swizzle");
  EXPECT_FOUND(With(right, "add.s64 %rd12, %rd11, 512;", "add.s64 %rd12, %rd11, 520;"),
               "where its swizzle begins");
  const Shape narrow{.span = 64};
  EXPECT_NE(RunKernel(narrow, KernelOf(narrow), TensorSwizzle::kNone), Expected(narrow));
}

TEST(PtxProductsTest, AStageThatIsReusedTooEarlyIsFound) {
  const std::string right = KernelOf({});
  EXPECT_FOUND(With(right, "@!%p3 bra EMPTY;\n", ""),
               "shared memory is (used|written)|more arrivals");
  EXPECT_FOUND(With(right, "xor.b32 %r7, %r7, 1;\n", ""), "never ends");
  std::string early = With(With(right, kArrive, ""), kLane, "");
  early = With(early, kWait, std::string(kLane) + kArrive + kWait);
  EXPECT_FOUND(early, "written that a product may still read");
}

TEST(PtxProductsTest, AMissingFenceIsFound) {
  const std::string right = KernelOf({});
  const std::string fence = "wgmma.fence.sync.aligned;\n";
  EXPECT_FOUND(With(right, fence, ""), "a product without a fence");
  // The accumulators are set behind the only fence.
  std::string late = With(right, fence, "");
  late = With(late, "CONSUMER:\n", "CONSUMER:\n" + fence);
  EXPECT_FOUND(late, "after other instructions, without a fence");
  EXPECT_FOUND(With(right, "fence.mbarrier_init.release.cluster;\n", ""), "but not fenced");
  const std::string store =
      "@!%p3 bra FULL;\nshl.b32 %r9, %r5, 16;\nadd.s32 %r9, %r9, %r2;\n"
      "st.shared.u32 [%r9+8192], %r1;\n";
  // A fence of mbarriers does not cover ordinary stores.
  for (const char* after : {"", "fence.mbarrier_init.release.cluster;\n"}) {
    EXPECT_FOUND(With(right, "@!%p3 bra FULL;\n", store + after), "without a fence of proxies");
  }
}

TEST(PtxProductsTest, WrongExpectedBytesAreFound) {
  const std::string right = KernelOf({});
  EXPECT_FOUND(With(right, "131072], 10240;", "131072], 8192;"),
               "while a copy to it is under way|never ends");
  EXPECT_FOUND(With(right, "131072], 10240;", "131072], 10256;"), "never ends");
}

TEST(PtxProductsTest, LongSumsInLowPrecisionAreFound) {
  const Shape shape, of_bf16{.is_bf16 = true};  // 5 stages of 128 or 64 products
  const auto run = [](const Shape& of, uint32_t most) {
    return RunKernel(of, KernelOf(of), TensorSwizzle::k128, most);
  };
  EXPECT_EQ(run(shape, 5 * 128), Expected(shape));
  EXPECT_EXIT(run(shape, 4 * 128), ::testing::ExitedWithCode(1), "than its precision allows");
  EXPECT_EQ(run(of_bf16, 1), Expected(of_bf16));
}

TEST(PtxProductsTest, AWaitWithoutALoopIsFound) {
  EXPECT_FOUND(With(KernelOf({}), "@!%p3 bra FULL;\n", ""), "while a copy to it is under way");
  const std::string without_loop = With(KernelOf({}), "@!%p3 bra FULL;\n", "");
  const std::string wait = "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r8+131072], %r7;\n";
  EXPECT_FOUND(With(without_loop, wait, ""), "while a copy to it is under way");
}

TEST(PtxProductsTest, ResultsThatAreReadBeforeTheyAreThereAreFound) {
  const std::string right = KernelOf({});
  EXPECT_FOUND(With(right, kWait, ""), "written that a product may still read");
  EXPECT_FOUND(With(right, kWait, "add.f32 %f0, %f0, %f1;\n" + std::string(kWait)),
               "before the product that writes it is waited for");
  EXPECT_FOUND(With(right, kWait, "mov.f32 %f0, 0f00000000;\n" + std::string(kWait)),
               "before the product that writes it is waited for");
  EXPECT_FOUND(With(right, "wgmma.commit_group.sync.aligned;\n", ""),
               "written that a product may still read");
  // Another name of a register is allowed.
  EXPECT_EQ(RunKernel({}, With(right, kWait, "mov.f32 %f200, %f0;\n" + std::string(kWait))),
            Expected({}));
}

}  // namespace
}  // namespace sluice::ptx
