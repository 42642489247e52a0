// A small kernel in the style of linear_f8_groups.cu, correct or with one fault of synchronization,
// which the emulator's seeded orders must find.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/linear_groups.h"
#include "kernels/cuda/seeded_faults_testing.h"

namespace sluice::emulated::faults {

enum class GroupFault : uint8_t {
  kNone,
  kEmptyTooEarly,  // a stage is said to be empty before the products that read it have ended
  kReadTooEarly,   // results are read before their products have ended
};

struct GroupRingArgs {
  device::TensorMap w, x;  // [64, k] and [16, k], in tiles of 128 columns
  int stages;
  float* y;  // [64, 16]
};

// Four warps multiply, the fifth copies, through a ring of two stages.
template <GroupFault kFault>
void GroupRing(GroupRingArgs args) {
  constexpr int kStages = 2, kWeights = 64 * 128, kStageBytes = kWeights + 16 * 128;
  const uint32_t begin = SharedAddress(SharedMemory());
  const auto full = [&](int slot) { return begin + kStages * kStageBytes + slot * 8u; };
  const auto empty = [&](int slot) { return full(slot) + kStages * 8; };
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 128) {
    for (int slot = 0; slot < kStages; ++slot) {
      InitMbarrier(full(slot), 1);
      InitMbarrier(empty(slot), 4);
    }
    FenceMbarriers();
  }
  __syncthreads();
  if (thread > 128) return;
  if (thread == 128) {
    for (int stage = 0; stage < args.stages; ++stage) {
      const int slot = stage % kStages;
      const uint32_t to = begin + static_cast<uint32_t>(slot * kStageBytes);
      AwaitPhase(empty(slot), stage / kStages % 2 ^ 1);
      ArriveForBytes(full(slot), kStageBytes);
      CopyTile(to, &args.w, stage * 128, 0, full(slot));
      CopyTile(to + kWeights, &args.x, stage * 128, 0, full(slot));
    }
    return;
  }
  float sums[8] = {}, total[8] = {};
  for (int stage = 0; stage < args.stages; ++stage) {
    const int slot = stage % kStages;
    const uint32_t from = begin + static_cast<uint32_t>(slot * kStageBytes);
    AwaitPhase(full(slot), stage / kStages % 2);
    FenceProducts();
    for (int step = 0; step < 4; ++step) {
      const uint64_t columns = static_cast<uint64_t>(step) * kNextColumns;
      MultiplyGroup<16>(sums, DescribeRows(from) + columns, DescribeRows(from + kWeights) + columns,
                        step != 0);
    }
    CommitProducts();
    if (kFault == GroupFault::kEmptyTooEarly && thread % 32 == 0) Arrive(empty(slot));
    if (kFault == GroupFault::kReadTooEarly)
      for (int i = 0; i < 8; ++i) total[i] += sums[i];
    AwaitProducts<0>();
    if (kFault != GroupFault::kReadTooEarly)
      for (int i = 0; i < 8; ++i) total[i] += sums[i];
    if (kFault != GroupFault::kEmptyTooEarly && thread % 32 == 0) Arrive(empty(slot));
  }
  for (int i = 0; i < 8; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    args.y[row * 16 + i / 4 * 8 + thread % 4 * 2 + i % 2] = total[i];
  }
}

// Returns whether the results are correct.
template <GroupFault kFault>
bool RunGroupRing() {
  constexpr int kStages = 7;
  constexpr uint64_t kK = kStages * 128, kM = 16, kN = 64;
  static const unsigned char kCodes[] = {0, 0x38, 0x40, 0xB8, 0xC0};  // 0, 1, 2, -1, -2
  static const int kNumbers[] = {0, 1, 2, -1, -2};
  const auto index = [](uint64_t row, uint64_t k) { return (row * 3 + k + row * k / 7) % 5; };
  alignas(16) static unsigned char w[kN * kK], x[kM * kK];
  for (uint64_t k = 0; k < kK; ++k) {
    for (uint64_t n = 0; n < kN; ++n) w[n * kK + k] = kCodes[index(n, k)];
    for (uint64_t m = 0; m < kM; ++m) x[m * kK + k] = kCodes[index(m + 9, k)];
  }
  std::vector<float> y(kN * kM, -1);
  alignas(64) static GroupRingArgs args;
  args.stages = kStages;
  args.y = y.data();
  if (linear::EncodeCodes(args.w, w, {kK, kN}, {kK}, {128, 64}) != 0) return false;
  if (linear::EncodeCodes(args.x, x, {kK, kM}, {kK}, {128, 16}) != 0) return false;
  FaultStream stream;
  Launch<GroupRing<kFault>>(stream.handle, "group_ring",
                            {.threads = 160, .shared_bytes = 2 * (64 + 16) * 128 + 32}, args);
  stream.queue.RunAll();
  for (uint64_t n = 0; n < kN; ++n) {
    for (uint64_t m = 0; m < kM; ++m) {
      int sum = 0;
      for (uint64_t k = 0; k < kK; ++k) sum += kNumbers[index(n, k)] * kNumbers[index(m + 9, k)];
      if (y[n * kM + m] != static_cast<float>(sum)) return false;
    }
  }
  return true;
}

}  // namespace sluice::emulated::faults
