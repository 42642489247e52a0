// What the tests of device kernels share: runs in both orders of the emulator's threads, which must
// agree in every bit, and the check of kernels that write rows as RowsOut says.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "device/emulated_queue.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/emulator.h"
#include "kernels/kernel_testing.h"
#include "kernels/quantize_rows.h"
#include "tensor/float8.h"

namespace sluice::emulated {

// Runs what `launch` puts on the stream it is given.
inline void RunEmulated(emulator::Order order,
                        const std::function<void(const StreamHandle&)>& launch) {
  EmulatedQueue queue;
  LaunchFailure failure;
  emulator::SetOrder(order);
  launch({&queue, &failure});
  queue.RunAll();
  emulator::SetOrder(emulator::Order::kForward);
}

template <typename T>
bool HaveSameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// What `run(stream handle, out)` leaves in `out`, of `size` elements that were `filler` before; in
// both orders.
template <typename T>
std::vector<T> ResultOfBothOrders(int64_t size, T filler,
                                  const std::function<void(const StreamHandle&, T* out)>& launch) {
  std::vector<T> forward(static_cast<size_t>(size), filler), reverse = forward;
  RunEmulated(emulator::Order::kForward,
              [&](const StreamHandle& stream) { launch(stream, forward.data()); });
  RunEmulated(emulator::Order::kReverse,
              [&](const StreamHandle& stream) { launch(stream, reverse.data()); });
  EXPECT_TRUE(HaveSameBits(forward, reverse)) << "the order of the threads shows";
  return forward;
}

// Launches the kernel for rows [first, first + count) of a test's inputs.
using LaunchRows = std::function<void(const StreamHandle&, int64_t first, int64_t count,
                                      const device::RowsOut& out)>;

// Expects of a kernel that rows of RowScale::kNvF4 are its F32 rows rounded as the CPU rounds them:
// the device's numbers lack the tensor's scale, which is a power of two here.
inline void ExpectNvF4Rows(const std::vector<float>& f32, int64_t rows, int64_t cols,
                           const LaunchRows& launch) {
  ThreadPool pool(1);
  for (const float static_scale : {0x1p-8f, 0x1p3f, 0x1p-20f}) {
    std::vector<float> scales(static_cast<size_t>(rows), -1), expected(f32.size());
    const auto bf16 = ResultOfBothOrders<uint16_t>(rows * cols, 0xFFFF,
                                                   [&](const StreamHandle& stream, uint16_t* out) {
                                                     launch(stream, 0, rows,
                                                            {.data = out,
                                                             .type = ElementType::kBF16,
                                                             .scales = scales.data(),
                                                             .row_scale = device::RowScale::kNvF4,
                                                             .static_scale = static_scale});
                                                   });
    kernels::RoundRows(
        pool, {.kind = ActivationFormat::Kind::kNvfp4, .group_size = 16}, static_scale,
        {.data = f32.data(), .type = ElementType::kF32, .rows = rows, .cols = cols, .stride = cols},
        expected.data());
    EXPECT_EQ(scales, std::vector<float>(static_cast<size_t>(rows), static_scale));
    for (size_t i = 0; i < f32.size(); ++i) {
      const float value = ToFloat(BFloat16{bf16[i]}) * static_scale;
      const bool both_nan = value != value && expected[i] != expected[i];
      EXPECT_TRUE(value == expected[i] || both_nan)
          << value << " instead of " << expected[i] << ", NVFP4 at " << static_scale;
    }
  }
}

// Expects of a kernel that BF16, E4M3 and NVFP4 rows are its own F32 rows rounded as the CPU rounds
// them, that a row alone is the row of the batch, and that the order of threads does not show.
// Returns the F32 rows [rows, cols].
inline std::vector<float> ExpectRoundedRows(int64_t rows, int64_t cols, const LaunchRows& launch) {
  const auto f32 =
      ResultOfBothOrders<float>(rows * cols, -1, [&](const StreamHandle& stream, float* out) {
        launch(stream, 0, rows, {.data = out, .type = ElementType::kF32});
      });
  for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
    const auto alone =
        ResultOfBothOrders<float>(cols, -1, [&](const StreamHandle& stream, float* out) {
          launch(stream, row, 1, {.data = out, .type = ElementType::kF32});
        });
    EXPECT_EQ(memcmp(alone.data(), f32.data() + row * cols, alone.size() * sizeof(float)), 0)
        << "row " << row << " depends on the batch";
  }
  const auto bf16 = ResultOfBothOrders<uint16_t>(
      rows * cols, 0xFFFF, [&](const StreamHandle& stream, uint16_t* out) {
        launch(stream, 0, rows, {.data = out, .type = ElementType::kBF16});
      });
  for (size_t i = 0; i < f32.size(); ++i) EXPECT_EQ(bf16[i], ToBFloat16(f32[i]).bits);
  ThreadPool pool(1);
  for (const bool per_token : {false, true}) {
    constexpr float kScale = 0.0371f;
    std::vector<float> scales(static_cast<size_t>(rows), -1);
    const auto codes = ResultOfBothOrders<uint8_t>(
        rows * cols, 0x55, [&](const StreamHandle& stream, uint8_t* out) {
          launch(stream, 0, rows,
                 {.data = out,
                  .type = ElementType::kF8E4M3,
                  .scales = scales.data(),
                  .row_scale = per_token ? device::RowScale::kPerToken : device::RowScale::kStatic,
                  .static_scale = kScale});
        });
    const ActivationFormat format{.kind = per_token ? ActivationFormat::Kind::kFp8PerToken
                                                    : ActivationFormat::Kind::kFp8Static};
    std::vector<float> expected(f32.size());
    kernels::RoundRows(
        pool, format, kScale,
        {.data = f32.data(), .type = ElementType::kF32, .rows = rows, .cols = cols, .stride = cols},
        expected.data());
    for (size_t i = 0; i < f32.size(); ++i) {
      const float scale = scales[i / static_cast<size_t>(cols)];
      if (!per_token) {
        EXPECT_EQ(scale, kScale);
      }
      const float value = ToFloat(Float8E4M3{codes[i]}) * scale;
      const bool both_nan = value != value && expected[i] != expected[i];
      EXPECT_TRUE(value == expected[i] || both_nan)
          << value << " instead of " << expected[i] << (per_token ? ", per token" : ", static");
    }
  }
  if (cols % 16 == 0) ExpectNvF4Rows(f32, rows, cols, launch);
  return f32;
}

}  // namespace sluice::emulated
