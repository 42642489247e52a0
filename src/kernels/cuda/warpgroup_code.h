// The language of kernels for compute capability 9.0 alone (Hopper): copies of tiles from tensor
// maps (TMA), barriers in shared memory that count their bytes, and matrix products of a warpgroup
// (wgmma), which is four consecutive warps, the first with a number divisible by 4. Included by
// kernels that are compiled for 9.0a. The emulator has the same functions. On AMD's GPUs there are
// none of them.
//
// Addresses in shared memory are numbers (SharedAddress). An mbarrier is 8 bytes, aligned to 8. Its
// phases are numbered from 0; a phase ends when all its arrivals and bytes have come.
#pragma once

#include "device/plain_tensor_map.h"
#include "kernels/cuda/device_code.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)

#elif defined(__CUDACC__)

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Makes an mbarrier whose phases have `count` arrivals. Other threads may use it after
// FenceMbarriers() of this thread and a barrier of the block.
__device__ __forceinline__ void InitMbarrier(uint32_t mbarrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(mbarrier), "r"(count) : "memory");
}
__device__ __forceinline__ void FenceMbarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
// Arrives, and makes the phase also wait for `bytes` bytes of copies.
__device__ __forceinline__ void ArriveForBytes(uint32_t mbarrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(mbarrier),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void Arrive(uint32_t mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(mbarrier) : "memory");
}
// Waits for the end of a phase with this parity: 0 for the first one. Returns at once if that phase
// is not the current one, so the phase before the first has parity 1.
__device__ __forceinline__ void AwaitPhase(uint32_t mbarrier, int parity) {
  uint32_t is_over;
  do {
    asm volatile(
        "{\n"
        "  .reg .pred over;\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "  selp.b32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(is_over)
        : "r"(mbarrier), "r"(parity)
        : "memory");
  } while (is_over == 0);
}

// One thread. Copies a tile of a matrix to shared memory (aligned to 128 bytes), from this column
// and row on. Elements outside of the matrix become zeros; all of the tile's bytes count for the
// mbarrier. `map`: in the kernel's argument.
__device__ __forceinline__ void CopyTile(uint32_t shared, const device::TensorMap* map, int column,
                                         int row, uint32_t mbarrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];\n" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(mbarrier)
      : "memory");
}

// Warpgroup. Between other uses of a product's registers and the product.
__device__ __forceinline__ void FenceProducts() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
// Warpgroup. Ends a group of products.
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Warpgroup. Waits until at most the last kPending groups are in progress.
template <int kPending>
__device__ __forceinline__ void AwaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of these registers across the place of the call: before
// FenceProducts and after AwaitProducts.
template <int kCount>
__device__ __forceinline__ void PinRegisters(float (&d)[kCount]) {
  SLUICE_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Warpgroup. d = a b^T (+ d if `accumulates`): a [64, 32] and b [kColumns, 32] E4M3 in shared
// memory, d [64, kColumns] F32. Warp w of the group has rows 16 w to 16 w + 15, as MmaBf16 for each
// 8 columns: with g = lane / 4, t = lane % 4, d[4 j] and d[4 j + 1] are row g, columns 8 j + 2 t
// and 8 j + 2 t + 1, d[4 j + 2] and d[4 j + 3] row g + 8. The registers must not be used before
// AwaitProducts.
template <int kColumns>
__device__ __forceinline__ void MultiplyGroup(float (&d)[kColumns / 2], uint64_t a, uint64_t b,
                                              int accumulates);
template <>
__device__ __forceinline__ void MultiplyGroup<16>(float (&d)[8], uint64_t a, uint64_t b,
                                                  int accumulates) {
  asm volatile(
      "{\n.reg .pred sums;\nsetp.ne.b32 sums, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7}, "
      "%8, %9, sums, 1, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b), "r"(accumulates)
      : "memory");
}
template <>
__device__ __forceinline__ void MultiplyGroup<32>(float (&d)[16], uint64_t a, uint64_t b,
                                                  int accumulates) {
  asm volatile(
      "{\n.reg .pred sums;\nsetp.ne.b32 sums, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "%16, %17, sums, 1, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(accumulates)
      : "memory");
}
template <>
__device__ __forceinline__ void MultiplyGroup<64>(float (&d)[32], uint64_t a, uint64_t b,
                                                  int accumulates) {
  asm volatile(
      "{\n.reg .pred sums;\nsetp.ne.b32 sums, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15, "
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "%32, %33, sums, 1, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(accumulates)
      : "memory");
}

#else  // the emulator

using emulator::Arrive;
using emulator::ArriveForBytes;
using emulator::AwaitPhase;
using emulator::CommitProducts;
using emulator::CopyTile;
using emulator::FenceMbarriers;
using emulator::FenceProducts;
using emulator::InitMbarrier;
using emulator::SharedAddress;

template <int kPending>
void AwaitProducts() {
  emulator::AwaitProductGroups(kPending);
}
template <int kCount>
void PinRegisters(float (&)[kCount]) {}
template <int kColumns>
void MultiplyGroup(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int accumulates) {
  emulator::MultiplyGroup(d, kColumns, a, b, accumulates != 0);
}

#endif

// Describes a matrix in shared memory to MultiplyGroup: rows of 128 bytes beside each other, from a
// multiple of 1024 bytes on, whose pieces of 16 bytes are exchanged as by TensorSwizzle::k128. 32
// columns further on, the description is larger by kNextColumns. (PTX ISA, matrix descriptor.)
__device__ __forceinline__ uint64_t DescribeRows(uint32_t shared) {
  constexpr uint64_t kEightRows = 1024, kSwizzle128 = 1;
  return (shared & 0x3FFFFu) >> 4 | kEightRows >> 4 << 32 | kSwizzle128 << 62;
}
constexpr uint64_t kNextColumns = 32 >> 4;

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
