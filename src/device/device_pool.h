// The device's memory for one model: one allocation of the size that the memory plan found, cut
// once, at start. Nothing is given back singly, so what a plan counts with Padded is exactly what
// it takes. On an emulated device a gap that nobody may write lies behind each piece, which counts
// nowhere: a write there ends the program when the pool goes, with the piece's name, and an address
// sanitizer sees any access at once. So do gaps between the arrays of a piece, for which the device
// asks with EmulatedDeviceOptions::keeps_arrays_apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace sluice {

class EmulatedDevice;

// Behind an array of a piece: offset from its begin.
struct ArrayGap {
  int64_t offset;
  int64_t bytes;
};

// Thread safety: one thread at a time. Ownership: owns the memory; pieces live as long as the pool,
// which must not outlive the device; move-only.
class DevicePool {
 public:
  static constexpr int64_t kAlignment = 256;

  // `bytes` may be any size; kResourceExhausted as Device::Allocate, naming `what`.
  static Result<DevicePool> Allocate(Device& device, int64_t bytes, const char* what);

  // What Take(bytes) takes of the pool.
  static constexpr int64_t Padded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // The next piece, aligned to kAlignment, not zeroed. Null for 0 bytes. kResourceExhausted names
  // `what`, what it needs and what is left. `gaps`: of the arrays in it, ArrayCutter's, whose cut
  // then begins at the piece; they count nowhere. REQUIRES: none, unless keeps_arrays_apart().
  Result<void*> Take(int64_t bytes, const char* what, const std::vector<ArrayGap>& gaps = {});

  bool keeps_arrays_apart() const;

  // Where the first piece lies.
  std::byte* begin() const { return memory_.As<std::byte>(); }
  int64_t used_bytes() const { return used_; }
  int64_t size_bytes() const { return size_; }

  DevicePool(DevicePool&&) = default;
  DevicePool& operator=(DevicePool&&) = delete;
  ~DevicePool();

 private:
  // Behind a piece or an array of it, of an emulated device.
  struct Gap {
    unsigned char* begin;
    int64_t bytes;
    std::string piece;
  };
  DevicePool() = default;
  void AddGap(unsigned char* begin, int64_t bytes, std::string piece);

  DeviceBuffer memory_;
  int64_t size_ = 0, used_ = 0;
  EmulatedDevice* emulated_ = nullptr;  // null: of a GPU
  int64_t gaps_in_memory_ = 0;
  std::vector<Gap> gaps_;
  std::vector<DeviceBuffer> apart_;  // pieces whose arrays are kept apart
};

}  // namespace sluice
