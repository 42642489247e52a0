// A model's device memory: a single allocation, of the size in the memory plan, which is divided
// into pieces once, at startup. Pieces are not freed individually, so a plan that adds up Padded
// sizes is exact.
//
// On an emulated device, a gap that must not be written follows each piece; gaps do not count as
// used memory. After a write to a gap, the pool's destructor aborts the program and names the
// piece. An address sanitizer reports any access immediately. With
// EmulatedDeviceOptions::keeps_arrays_apart there are also gaps between the arrays of a piece.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace sluice {

class EmulatedDevice;

// The gap after an array of a piece. The offset counts from the start of the piece.
struct ArrayGap {
  int64_t offset;
  int64_t bytes;
};

// Thread safety: one thread at a time. Ownership: owns the memory; pieces live as long as the pool,
// which must not outlive the device; move-only.
class DevicePool {
 public:
  static constexpr int64_t kAlignment = 256;

  // Allocates `bytes` bytes; any size is allowed. kResourceExhausted as in Device::Allocate; the
  // message names `what`.
  static Result<DevicePool> Allocate(Device& device, int64_t bytes, const char* what);

  // Returns the number of bytes of the pool that Take(bytes) uses.
  static constexpr int64_t Padded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Returns the next piece, aligned to kAlignment, not zeroed. Null for 0 bytes. kResourceExhausted
  // names `what`, the required and the remaining size. `gaps`: the gaps of an ArrayCutter that
  // divides this piece; they do not count as used memory. REQUIRES: `gaps` is empty unless
  // keeps_arrays_apart().
  Result<void*> Take(int64_t bytes, const char* what, const std::vector<ArrayGap>& gaps = {});

  bool keeps_arrays_apart() const;

  // Returns the address of the first piece.
  std::byte* begin() const { return memory_.As<std::byte>(); }
  int64_t used_bytes() const { return used_; }
  int64_t size_bytes() const { return size_; }

  DevicePool(DevicePool&&) = default;
  DevicePool& operator=(DevicePool&&) = delete;
  ~DevicePool();

 private:
  // A gap after a piece or one of its arrays, on an emulated device.
  struct Gap {
    unsigned char* begin;
    int64_t bytes;
    std::string piece;
  };
  DevicePool() = default;
  void AddGap(unsigned char* begin, int64_t bytes, std::string piece);

  DeviceBuffer memory_;
  int64_t size_ = 0, used_ = 0;
  EmulatedDevice* emulated_ = nullptr;  // null on a GPU
  int64_t gaps_in_memory_ = 0;
  std::vector<Gap> gaps_;
  std::vector<DeviceBuffer> apart_;  // memory of the pieces whose arrays have gaps between them
};

}  // namespace sluice
