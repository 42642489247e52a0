// An accelerator: its memory, its queues of work, and its errors.
//
// Two kinds stand after this contract. kCuda is an NVIDIA GPU, reached through the CUDA runtime,
// which loads the driver when the first device is opened: the program starts on machines that have
// none. kEmulated runs the same kernels' source on the CPU (kernels/cuda/emulator.h), for tests and
// for developers without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/stream_handle.h"

namespace sluice {

enum class DeviceKind : uint8_t { kCuda, kEmulated };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCuda;
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  std::string uuid;
  int compute_major = 0, compute_minor = 0;  // 9, 0: Hopper
  int num_multiprocessors = 0;
  int64_t total_bytes = 0;  // of memory
  int64_t l2_bytes = 0;
  int64_t max_shared_bytes = 0;  // that one block of threads may take
  int64_t memory_bus_bits = 0;
  int driver_version = 0, runtime_version = 0;  // 13000: CUDA 13.0; 0 where emulated

  // 90 for 9.0.
  int compute_capability() const { return compute_major * 10 + compute_minor; }
};

class Device;

// Memory of a device, or page-locked memory of the host that the device copies to and from.
// Ownership: owns it, and must not outlive the device; move-only.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device* device, void* data, int64_t size_bytes, bool is_host)
      : device_(device), data_(data), size_(size_bytes), is_host_(is_host) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(is_host_, other.is_host_);
    return *this;
  }
  ~DeviceBuffer();

  // An address of the device, unless the memory is the host's: not to be read or written here.
  void* data() const { return data_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  int64_t size_bytes() const { return size_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t size_ = 0;
  bool is_host_ = false;
};

// A place in a stream's order. Made by a device; recorded by one stream, waited for by others.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Waits until the stream has passed the last Record. Returns at once if there was none.
  virtual Status Synchronize() = 0;
  // Between the last Record of `begin` and this one's, both passed. 0 where emulated.
  virtual Result<double> SecondsSince(DeviceEvent& begin) = 0;
};

// Work that a stream recorded, to be enqueued again as a whole: a CUDA graph. It goes with the
// addresses and numbers that it was recorded with, and reads what lies at those addresses when it
// runs. Ownership: what it uses outlives it, and it outlives its own runs.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual int64_t num_operations() const = 0;
};

// A queue of work. Every method but Synchronize returns at once; failures are reported by the next
// Synchronize. Host memory that is copied from or to must stay as it is until the copy is passed;
// copies run beside the host only where that memory is page-locked. Thread safety: one thread at a
// time.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  virtual void CopyToDevice(void* to, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* from, int64_t bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, int64_t bytes) = 0;
  virtual void Fill(void* to, uint8_t byte, int64_t bytes) = 0;
  virtual void Record(DeviceEvent& event) = 0;
  virtual void WaitFor(DeviceEvent& event) = 0;  // what follows runs after the event's last Record
  // Waits for everything so far. The error of the first launch, copy or kernel that failed since
  // the last call, by name where it is known; kInternal. Every call fails once the device is lost.
  virtual Status Synchronize() = 0;
  // Without waiting: whether Synchronize would return at once, since everything is done or failed.
  virtual bool IsIdle() = 0;

  // For launchers.
  virtual StreamHandle handle() = 0;

  // As Synchronize, for everything before the event's last Record by this stream; the error may be
  // of what was enqueued behind it.
  virtual Status SynchronizeUntil(DeviceEvent& /*event*/) { return Synchronize(); }

  // From here to EndCapture what is enqueued is recorded in place of being run. That may be
  // launches, copies on the device and fills; to wait, to copy from or to the host or to record an
  // event then fails the recording. kUnsupported where the stream cannot record.
  virtual Status BeginCapture();
  // What was recorded, ready to run: Replay allocates nothing. Waits for the stream. The error of
  // whatever failed since BeginCapture; the stream then works as before. REQUIRES: BeginCapture
  // succeeded.
  virtual Result<std::unique_ptr<DeviceGraph>> EndCapture();
  // Enqueues what this stream recorded, once more.
  virtual void Replay(DeviceGraph& graph);
};

// Thread safety: any thread may call any method; one stream's methods by one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  // The error after which the device is lost: nothing works on it until the process is restarted.
  virtual Status CheckAlive() const = 0;
  // Memory that is not allocated.
  virtual Result<int64_t> FreeBytes() = 0;
  // Not zeroed, aligned to 256 bytes. kResourceExhausted names `what`, the size, and what is free.
  virtual Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) = 0;
  virtual Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) = 0;
  // Page-locks existing host memory until Unpin. Returns false where that is not possible: copies
  // are then slower.
  virtual bool Pin(void* data, int64_t bytes) = 0;
  virtual void Unpin(void* data) = 0;
  virtual Result<std::unique_ptr<DeviceStream>> CreateStream() = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> CreateEvent() = 0;

 protected:
  friend class DeviceBuffer;
  virtual void Free(void* data, bool is_host) = 0;
};

// Whether the program was built with the CUDA backend (make build-cuda).
bool BuiltWithCuda();

// What CUDA devices the driver shows (it follows CUDA_VISIBLE_DEVICES). kUnsupported says why there
// are none: a program built without CUDA, no driver, a driver too old for the runtime (both
// versions), or no device.
Result<std::vector<DeviceInfo>> ListCudaDevices();

// Opens a device and checks that it can run this program's kernels. kUnsupported as above, or for a
// device of a compute capability that no kernel was compiled for (both are named); kNotFound for an
// ordinal that is not there.
Result<std::unique_ptr<Device>> OpenDevice(DeviceKind kind, int ordinal);

}  // namespace sluice
