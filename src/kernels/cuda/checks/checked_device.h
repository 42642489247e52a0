// The device that is checked or measured, and the memory of a single check.
#pragma once

#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/stand_in.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/device_linear.h"

namespace sluice::checks {

// Thread safety: one thread at a time.
class DeviceUnderTest {
 public:
  static Result<DeviceUnderTest> Open(DeviceKind kind, int ordinal);
  // Wraps a device that is already open.
  static Result<DeviceUnderTest> Of(std::unique_ptr<Device> device);

  Device& device() const { return *device_; }
  DeviceStream& stream() const { return *stream_; }
  StreamHandle handle() const { return stream_->handle(); }
  const device::DeviceKernels& kernels() const { return kernels_; }
  // Only for tests of the checks.
  void ReplaceKernels(const device::DeviceKernels& kernels) { kernels_ = kernels; }
  // Returns whether kernels run on the CPU.
  bool is_emulated() const { return RunsOnCpu(device_->info()); }
  // Returns whether E4M3 products are supported. A GPU's tensor cores may truncate their sums.
  bool has_e4m3_products() const {
    return is_emulated() || device_->info().compute_capability() >= 89;
  }
  // Returns whether DeviceKernels::linear_groups runs.
  bool has_group_products() const {
    const DeviceInfo& info = device_->info();
    return info.kind == DeviceKind::kEmulated ||
           (info.kind == DeviceKind::kCuda && info.compute_capability() == 90);
  }
  // Returns whether the library multiplies NVFP4 weights by NVFP4 inputs.
  bool has_nvf4_products() const { return device_->info().compute_capability() >= 100; }
  // Returns whether kernels multiply MXFP4 weights by codes of MXFP4 inputs.
  bool has_mxf4_products() const { return device::MultipliesMxF4(device_->info()); }
  // Returns whether the device is unusable: it fails again after its failure was reported.
  bool is_lost() const { return !stream_->Synchronize(); }

 private:
  DeviceUnderTest() = default;

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  device::DeviceKernels kernels_ = {};
};

// Device memory and launches of one check. The first failure is kept, and all later calls do
// nothing (Read returns zeros), so a check need not test for failures in between.
class CaseMemory {
 public:
  explicit CaseMemory(const DeviceUnderTest& device) : device_(device) {}
  // Waits for launches that may still be using the memory.
  ~CaseMemory() { static_cast<void>(device_.stream().Synchronize()); }
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  const DeviceUnderTest& device() const { return device_; }

  // Launches a kernel: Launch(&DeviceKernels::linear, args).
  template <typename Args>
  void Launch(void (*device::DeviceKernels::*kernel)(const StreamHandle&, const Args&),
              const std::type_identity_t<Args>& args) {
    if (ok()) (device_.kernels().*kernel)(device_.handle(), args);
  }
  // Keeps `status` if it is the first failure.
  void Require(const Status& status) {
    if (ok()) status_ = status;
  }

  // Returns a copy of `values` on the device.
  template <typename T>
  const T* In(const std::vector<T>& values) {
    return static_cast<const T*>(
        Copy(std::as_bytes(std::span<const T>(values)), /*is_output=*/false));
  }
  // Returns a copy of `values` on the device that a kernel may change.
  template <typename T>
  T* InOut(const std::vector<T>& values) {
    return static_cast<T*>(Copy(std::as_bytes(std::span<const T>(values)), /*is_output=*/true));
  }
  // Returns `count` elements of bytes 0xFF, which are NaN in every floating-point type. The bytes
  // after them are guarded.
  template <typename T>
  T* Out(int64_t count) {
    return static_cast<T*>(Fill(count * static_cast<int64_t>(sizeof(T))));
  }
  // Waits for the device and reads `count` elements at `from`, which must be in this memory. Fails
  // if a kernel wrote past the end of an output.
  template <typename T>
  std::vector<T> Read(const T* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    ReadBytes(from, std::as_writable_bytes(std::span<T>(values)));
    return values;
  }

  bool ok() const { return status_.has_value(); }
  const Status& status() const { return status_; }
  // Returns a digest of all bytes read so far, in order.
  uint64_t digest() const { return digest_; }

 private:
  struct Piece {
    DeviceBuffer buffer;
    int64_t size = 0;
    bool is_output = false;
  };

  void* Copy(std::span<const std::byte> bytes, bool is_output);
  void* Fill(int64_t bytes);
  Piece* Take(int64_t bytes, bool is_output);
  void ReadBytes(const void* from, std::span<std::byte> to);
  void CheckGuards();

  const DeviceUnderTest& device_;
  std::list<Piece> pieces_;
  Status status_;
  uint64_t digest_ = 0;
};

}  // namespace sluice::checks
