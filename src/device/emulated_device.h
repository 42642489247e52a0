// A device emulated on the CPU. Its memory is host memory, its streams are queues whose work runs
// when a caller waits for it (emulated_queue.h), and its kernels run in kernels/cuda/emulator.h. It
// is designed to expose mistakes: unwritten memory contains 0xFF bytes (NaNs). A copy fails if its
// device addresses are not allocated device memory, or if its memory was freed or unpinned before
// the copy ran.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "device/device.h"

namespace sluice {

struct EmulatedDeviceOptions {
  // Size of the device's memory; the host allocates only pages that are written.
  int64_t total_bytes = int64_t{4} << 30;
  int compute_major = 9, compute_minor = 0;
  int ordinal = 0;
  bool runs_at_once = false;  // whether work runs as soon as it is enqueued
  // Whether a model's arrays are separate in memory, with gaps in between (DevicePool), even arrays
  // that share memory on a GPU.
  bool keeps_arrays_apart = false;
  bool addresses_others = true;  // whether kernels may address the memory of other devices
};

// Thread safety: like Device. Exception: streams that wait for each other's events must be used by
// one thread at a time. A stream that waits for an event runs the other stream's work in the
// calling thread.
class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedDeviceOptions& options = {});
  ~EmulatedDevice() override;

  const DeviceInfo& info() const override { return info_; }
  Status CheckAlive() const override;
  Result<int64_t> FreeBytes() override;
  Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) override;
  bool keeps_arrays_apart() const { return keeps_arrays_apart_; }
  // For memory with gaps: allocates `reserved` bytes, of which `bytes` count as used.
  Result<DeviceBuffer> AllocateSpaced(int64_t bytes, int64_t reserved, const char* what);
  Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) override;
  bool Pin(void* data, int64_t bytes) override;
  void Unpin(void* data) override;
  Result<std::unique_ptr<DeviceStream>> CreateStream() override;
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override;
  bool LetAddress(const Device& other) override;

  // Cause faults, for tests. They affect the next work enqueued on any stream.
  void FailNextCopy() { copy_fault_ = true; }  // or the next fill
  void FailNextLaunch();
  // After this call, every call that can fail fails, and no work runs.
  void Lose() { is_lost_ = true; }
  // After this call, IsIdle runs nothing and returns false, as if a kernel never ended.
  void Hang() { hangs_ = true; }

  // Used by this device's streams to check for a lost device.
  bool is_lost() const { return is_lost_; }
  bool hangs() const { return hangs_; }
  bool TakeCopyFault() { return copy_fault_.exchange(false); }
  // Return whether all (Holds) or any (Touches) of these bytes are device memory.
  bool Holds(const void* data, int64_t bytes) const;
  bool Touches(const void* data, int64_t bytes) const;
  // Returns whether all these bytes are page-locked host memory.
  bool IsLocked(const void* data, int64_t bytes) const;

 protected:
  void Free(void* data, bool is_host) override;

 private:
  DeviceInfo info_;
  const bool runs_at_once_;
  const bool keeps_arrays_apart_;
  const bool addresses_others_;
  std::atomic<bool> is_lost_ = false, hangs_ = false;
  std::atomic<bool> copy_fault_ = false;
  std::atomic<int> launch_fault_ = 0;
  mutable std::mutex mutex_;
  std::map<uintptr_t, int64_t> allocated_;  // device memory: sizes by address
  // Reserved bytes of device memory that do not count as used.
  std::map<uintptr_t, int64_t> spaced_;
  std::map<uintptr_t, int64_t> pinned_;  // page-locked host memory
  std::map<uintptr_t, int64_t> locked_;  // page-locked host memory owned by others
  int64_t allocated_bytes_ = 0;
};

}  // namespace sluice
