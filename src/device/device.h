// An accelerator: its memory, its queues of work, and its errors.
//
// kCuda is an NVIDIA GPU, accessed through the CUDA runtime. The runtime loads the driver when the
// first device is opened, so the program also starts on machines without a driver. kHip is an AMD
// GPU, accessed through HIP's runtime, which is opened at run time. kEmulated runs the same kernel
// source on the CPU (kernels/cuda/emulator.h), for tests and for developers without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/stream_handle.h"

namespace sluice {

enum class DeviceKind : uint8_t { kCuda, kEmulated, kHip };

constexpr bool IsGpu(DeviceKind kind) {
  return kind != DeviceKind::kEmulated;
}
// Returns the name that --device accepts.
constexpr const char* DeviceKindName(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? "cuda" : kind == DeviceKind::kHip ? "hip" : "emulated";
}

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCuda;
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  std::string uuid;
  int compute_major = 0, compute_minor = 0;  // 9, 0: Hopper; on AMD 9, 4: gfx942, and 9, 5: gfx950
  int num_multiprocessors = 0;
  int64_t total_bytes = 0;  // size of the device's memory
  int64_t l2_bytes = 0;
  int64_t max_shared_bytes = 0;  // maximum for one block of threads
  int64_t memory_bus_bits = 0;
  int driver_version = 0, runtime_version = 0;  // in the vendor's numbering; 0 if emulated

  // 90 for 9.0.
  int compute_capability() const { return compute_major * 10 + compute_minor; }
};

class Device;

// Device memory, or page-locked host memory for copies. Ownership: owns the memory; must not
// outlive the device; move-only.
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

  // A device address. The host can use it only if this is host memory.
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

// A point in the order of a stream's work. A device creates it, one stream records it, and other
// streams wait for it.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Waits until the stream has passed the last Record. Returns immediately if there was none.
  virtual Status Synchronize() = 0;
  // Returns the time between the last Record of `begin` and the last Record of this event. 0 if
  // emulated. REQUIRES: the stream has passed both.
  virtual Result<double> SecondsSince(DeviceEvent& begin) = 0;
};

// Recorded work of a stream, which can be enqueued again as a whole: a CUDA graph. A replay uses
// the recorded addresses and numbers, and reads the memory at those addresses when it runs.
// Ownership: the memory must outlive the graph, and the graph must outlive its replays.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual int64_t num_operations() const = 0;
};

// A queue of work. All methods except Synchronize return immediately; the next Synchronize reports
// failures. Host memory of a copy must not change until the copy is done; copies run concurrently
// with the host only if that memory is page-locked. Thread safety: one thread at a time.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  virtual void CopyToDevice(void* to, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* from, int64_t bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, int64_t bytes) = 0;
  virtual void Fill(void* to, uint8_t byte, int64_t bytes) = 0;
  virtual void Record(DeviceEvent& event) = 0;
  virtual void WaitFor(DeviceEvent& event) = 0;  // later work runs after the event's last Record
  // Waits for all work so far. Returns the error of the first launch, copy or kernel that failed
  // since the last call, with its name if known; kInternal. Every call fails once the device is
  // lost.
  virtual Status Synchronize() = 0;
  // Whether Synchronize would return immediately, since all work is done or has failed. Does not
  // wait.
  virtual bool IsIdle() = 0;

  // Returns the handle that kernel launchers need.
  virtual StreamHandle handle() = 0;

  // Like Synchronize, but waits only for the work before this stream's last Record of the event.
  // The returned error may come from later work.
  virtual Status SynchronizeUntil(DeviceEvent& /*event*/) { return Synchronize(); }

  // Until EndCapture, work is recorded instead of run. Launches, copies on the device and fills are
  // allowed. Waiting, copying from or to the host, or recording an event makes the recording fail.
  // kUnsupported if the stream cannot record.
  virtual Status BeginCapture();
  // Returns the recorded work, ready to run: Replay allocates nothing. Waits for the stream.
  // Returns the error of anything that failed since BeginCapture; the stream then remains usable.
  // REQUIRES: BeginCapture succeeded.
  virtual Result<std::unique_ptr<DeviceGraph>> EndCapture();
  // Enqueues a graph that this stream recorded.
  virtual void Replay(DeviceGraph& graph);
};

// Thread safety: any thread may call any method; a stream is used by one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  // Returns the error after which the device is lost: unusable until the process is restarted.
  // Success if there was none.
  virtual Status CheckAlive() const = 0;
  // Free memory.
  virtual Result<int64_t> FreeBytes() = 0;
  // Allocates memory that is not zeroed, aligned to 256 bytes. kResourceExhausted names `what`, the
  // size and the free memory.
  virtual Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) = 0;
  virtual Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) = 0;
  // Page-locks existing host memory until Unpin. Returns false if that is not possible; copies are
  // then slower.
  virtual bool Pin(void* data, int64_t bytes) = 0;
  virtual void Unpin(void* data) = 0;
  virtual Result<std::unique_ptr<DeviceStream>> CreateStream() = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> CreateEvent() = 0;
  // Lets kernels of this device address the memory of `other`, including memory allocated later.
  // Returns whether they can.
  virtual bool LetAddress(const Device& /*other*/) { return false; }

 protected:
  friend class DeviceBuffer;
  virtual void Free(void* data, bool is_host) = 0;
};

// Whether the program was built with the CUDA backend (make build-cuda).
bool BuiltWithCuda();

// Returns the CUDA devices that the driver reports, as restricted by CUDA_VISIBLE_DEVICES.
// kUnsupported gives the reason why there are none: a program built without CUDA, no driver, a
// driver too old for the runtime (with both versions), or no device.
Result<std::vector<DeviceInfo>> ListCudaDevices();

// Like the two functions above, for AMD GPUs: whether the program was built with their kernels
// (make build-hip), and which devices HIP's runtime reports, as restricted by HIP_VISIBLE_DEVICES.
bool BuiltWithHip();
Result<std::vector<DeviceInfo>> ListHipDevices();

// Opens a device and checks that it can run this program's kernels. kUnsupported for the reasons of
// ListCudaDevices, or if no kernel was compiled for the device's compute capability; the error then
// names both. kNotFound if no device has this ordinal.
Result<std::unique_ptr<Device>> OpenDevice(DeviceKind kind, int ordinal);

}  // namespace sluice
