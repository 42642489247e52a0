// The device's memory for one model: one allocation of the size that the memory plan found, cut
// once, at start. Nothing is given back singly, so what a plan counts with Padded is exactly what
// it takes.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace sluice {

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
  // `what`, what it needs and what is left.
  Result<void*> Take(int64_t bytes, const char* what);

  int64_t used_bytes() const { return used_; }
  int64_t size_bytes() const { return memory_.size_bytes(); }

 private:
  DeviceBuffer memory_;
  int64_t used_ = 0;
};

}  // namespace sluice
