#include "device/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "device/architectures.h"
#include "device/cuda_errors.h"
#include "device/device_bytes.h"
#include "device/library_failure.h"

#ifndef SLUICE_CUDA_ARCHITECTURES
#error "SLUICE_CUDA_ARCHITECTURES names what the kernels are compiled for (cmake/Cuda.cmake)"
#endif

namespace sluice {
namespace {

// Returns `code` and clears the runtime's last error, so that no launcher reports it.
cudaError_t Forget(cudaError_t code) {
  if (code != cudaSuccess) cudaGetLastError();
  return code;
}

// Remembers the first error after which the device is unusable. Thread safe.
class Health {
 public:
  // The error to report; remembers fatal ones.
  Error Failure(const std::string& purpose, cudaError_t code) {
    Error error = CudaFailure(purpose, code);
    if (IsFatalCudaError(code)) {
      const std::lock_guard lock(mutex_);
      if (!lost_) LOG_ERROR("device", "{}", error.message);
      if (!lost_) lost_ = error;
    }
    return error;
  }
  Status Check() const {
    const std::lock_guard lock(mutex_);
    if (lost_) return tl::unexpected<Error>(*lost_);
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> lost_;
};

// The device of a stream or an event.
struct Home {
  int ordinal;
  Health* health;

  // Makes the device the calling thread's current one, then calls `call`. Returns the error of
  // either.
  template <typename Call>
  cudaError_t Try(Call&& call) const {
    const cudaError_t entered = Forget(cudaSetDevice(ordinal));
    return entered != cudaSuccess ? entered : Forget(call());
  }
  template <typename Call>
  Status Do(const char* purpose, Call&& call) const {
    RETURN_IF_ERROR(health->Check());
    return Report(purpose, Try(call));
  }
  Status Report(const char* purpose, cudaError_t code) const {
    if (code != cudaSuccess) return tl::unexpected<Error>(health->Failure(purpose, code));
    return {};
  }
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(Home home, cudaEvent_t event) : home_(home), event_(event) {}
  ~CudaEvent() override {
    home_.Try([&] { return cudaEventDestroy(event_); });
  }

  Status Synchronize() override {
    return home_.Do("waiting for an event", [&] { return cudaEventSynchronize(event_); });
  }
  Result<double> SecondsSince(DeviceEvent& begin) override {
    float milliseconds = 0;
    RETURN_IF_ERROR(home_.Do("measuring the time between two events", [&] {
      return cudaEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(begin).event_, event_);
    }));
    return milliseconds * 1e-3;
  }
  cudaEvent_t native() const { return event_; }

 private:
  Home home_;
  cudaEvent_t event_;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(Home home, cudaGraphExec_t graph, int64_t num_operations)
      : home_(home), graph_(graph), num_operations_(num_operations) {}
  ~CudaGraph() override {
    home_.Try([&] { return cudaGraphExecDestroy(graph_); });
  }
  int64_t num_operations() const override { return num_operations_; }
  cudaGraphExec_t native() const { return graph_; }

 private:
  Home home_;
  cudaGraphExec_t graph_;
  int64_t num_operations_;
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(Home home, cudaStream_t stream) : home_(home), stream_(stream) {}
  // Waits, since pending work may use memory that is freed next.
  ~CudaStream() override {
    home_.Try([&] { return cudaStreamSynchronize(stream_); });
    home_.Try([&] { return cudaStreamDestroy(stream_); });
  }

  void CopyToDevice(void* to, const void* host, int64_t bytes) override {
    Copy("to the device", to, host, bytes, cudaMemcpyHostToDevice);
  }
  void CopyToHost(void* host, const void* from, int64_t bytes) override {
    Copy("to the host", host, from, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    Copy("on the device", to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void Fill(void* to, uint8_t byte, int64_t bytes) override {
    CHECK_GE(bytes, 0);
    if (bytes == 0) return;
    const cudaError_t code =
        home_.Try([&] { return cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), stream_); });
    if (code != cudaSuccess) Note(fmt::format("filling {} bytes of the device", bytes), code);
  }
  void Record(DeviceEvent& event) override {
    const cudaError_t code = home_.Try(
        [&] { return cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_); });
    if (code != cudaSuccess) Note("recording an event", code);
  }
  void WaitFor(DeviceEvent& event) override {
    const cudaError_t code = home_.Try(
        [&] { return cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).native(), 0); });
    if (code != cudaSuccess) Note("having a stream wait for an event", code);
  }

  Status Synchronize() override {
    return ReportAfter([&] { return cudaStreamSynchronize(stream_); });
  }
  Status SynchronizeUntil(DeviceEvent& event) override {
    return ReportAfter(
        [&] { return cudaEventSynchronize(static_cast<CudaEvent&>(event).native()); });
  }

  bool IsIdle() override {
    return home_.Try([&] { return cudaStreamQuery(stream_); }) != cudaErrorNotReady;
  }

  // While recording, other threads may allocate and copy.
  Status BeginCapture() override {
    RETURN_IF_ERROR(Synchronize());
    return home_.Do("beginning to record a graph", [&] {
      return cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    });
  }
  Result<std::unique_ptr<DeviceGraph>> EndCapture() override {
    const std::optional<Error> noted = std::exchange(noted_, std::nullopt);
    const LaunchFailure failure = std::exchange(launch_failure_, {});
    cudaGraph_t recorded = nullptr;
    const cudaError_t code = home_.Try([&] { return cudaStreamEndCapture(stream_, &recorded); });
    auto graph = Instantiate(noted, failure, code, recorded);
    if (recorded != nullptr) home_.Try([&] { return cudaGraphDestroy(recorded); });
    return graph;
  }
  void Replay(DeviceGraph& graph) override {
    const cudaError_t code = home_.Try(
        [&] { return cudaGraphLaunch(static_cast<CudaGraph&>(graph).native(), stream_); });
    if (code != cudaSuccess) return Note("launching a graph", code);
    launch_failure_.launched[launch_failure_.num_launched++ % LaunchFailure::kRemembered] =
        "a graph";
  }

  // Makes the device current, since launches go to the thread's current device.
  StreamHandle handle() override {
    const cudaError_t code = home_.Try([] { return cudaSuccess; });
    if (code != cudaSuccess) Note("selecting the device", code);
    return {stream_, &launch_failure_};
  }

 private:
  // Makes a graph from the recorded work, unless something failed during recording.
  Result<std::unique_ptr<DeviceGraph>> Instantiate(const std::optional<Error>& noted,
                                                   const LaunchFailure& failure, cudaError_t code,
                                                   cudaGraph_t recorded) {
    RETURN_IF_ERROR(home_.health->Check());
    if (failure.kernel != nullptr) RETURN_IF_ERROR(ReportLaunch(failure, code));
    if (noted) return tl::unexpected<Error>(*noted);
    RETURN_IF_ERROR(home_.Report("recording a graph", code));
    size_t num_operations = 0;
    RETURN_IF_ERROR(home_.Do("counting what a graph does", [&] {
      return cudaGraphGetNodes(recorded, nullptr, &num_operations);
    }));
    cudaGraphExec_t native = nullptr;
    RETURN_IF_ERROR(home_.Do("making a graph of what was recorded",
                             [&] { return cudaGraphInstantiate(&native, recorded, 0); }));
    auto graph = std::make_unique<CudaGraph>(home_, native, static_cast<int64_t>(num_operations));
    RETURN_IF_ERROR(home_.Do("bringing a graph to the device",
                             [&] { return cudaGraphUpload(native, stream_); }));
    RETURN_IF_ERROR(Synchronize());
    return graph;
  }
  // Reports failures so far, after `wait` has returned.
  template <typename Wait>
  Status ReportAfter(const Wait& wait) {
    const std::optional<Error> noted = std::exchange(noted_, std::nullopt);
    const LaunchFailure failure = std::exchange(launch_failure_, {});
    RETURN_IF_ERROR(home_.health->Check());
    const cudaError_t code = home_.Try(wait);
    if (failure.kernel != nullptr) return ReportLaunch(failure, code);
    if (noted) return tl::unexpected<Error>(*noted);
    std::string purpose = "running a stream's kernels and copies";
    if (IsFatalCudaError(code)) purpose += Suspects(failure);
    return home_.Report(purpose.c_str(), code);
  }
  // A launch or a wait can report the failure of an earlier kernel, unless every launch waits.
  static bool LaunchesWait() {
    const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value != nullptr && std::string_view(value) == "1";
  }
  static std::string Suspects(const LaunchFailure& failure) {
    std::string names;
    const unsigned count = std::min(failure.num_launched, LaunchFailure::kRemembered);
    for (unsigned i = failure.num_launched - count; i < failure.num_launched; ++i) {
      names += names.empty() ? "" : ", ";
      names += failure.launched[i % LaunchFailure::kRemembered];
    }
    if (names.empty()) return "";
    return fmt::format(
        " (the last kernels that were launched: {}; with CUDA_LAUNCH_BLOCKING=1 the "
        "one that fails is named)",
        names);
  }

  // `code`: the stream's later error. If it is fatal for the device, it says more than the launch
  // failure.
  Status ReportLaunch(const LaunchFailure& failure, cudaError_t code) const {
    std::string purpose = fmt::format("launching kernel {}", failure.kernel);
    const auto launch_code = static_cast<cudaError_t>(failure.code);
    if (failure.code != kFailedInLibrary && IsFatalCudaError(launch_code)) {
      purpose = LaunchesWait()
                    ? fmt::format("running kernel {}", failure.kernel)
                    : fmt::format("a kernel before {} failed{}", failure.kernel, Suspects(failure));
      return home_.Report(purpose.c_str(), launch_code);
    }
    if (IsFatalCudaError(code)) return home_.Report((purpose + Suspects(failure)).c_str(), code);
    if (failure.code == kFailedInLibrary)
      return Fail(ErrorCode::kInternal,
                  fmt::format("{} failed; the log tells its library's reason", failure.kernel));
    return home_.Report(purpose.c_str(), static_cast<cudaError_t>(failure.code));
  }
  void Note(const std::string& purpose, cudaError_t code) {
    Error error = home_.health->Failure(purpose, code);
    if (!noted_) noted_ = std::move(error);
  }
  void Copy(const char* where, void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    CHECK_GE(bytes, 0);
    if (bytes == 0) return;
    const cudaError_t code = home_.Try(
        [&] { return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_); });
    if (code != cudaSuccess) Note(fmt::format("copying {} bytes {}", bytes, where), code);
  }

  Home home_;
  cudaStream_t stream_;
  LaunchFailure launch_failure_;
  std::optional<Error> noted_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(DeviceInfo info) : info_(std::move(info)), home_{info_.ordinal, &health_} {}

  const DeviceInfo& info() const override { return info_; }
  Status CheckAlive() const override { return health_.Check(); }

  // Creates the driver's context: the first call that can fail.
  Status Enter() {
    return home_.Do(fmt::format("selecting CUDA device {} ({})", info_.ordinal, info_.name).c_str(),
                    [] { return cudaSuccess; });
  }

  Result<int64_t> FreeBytes() override {
    size_t free = 0;
    size_t total = 0;
    RETURN_IF_ERROR(
        home_.Do("asking for free device memory", [&] { return cudaMemGetInfo(&free, &total); }));
    return static_cast<int64_t>(free);
  }

  Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) override {
    CHECK_GE(bytes, 0);
    RETURN_IF_ERROR(health_.Check());
    if (bytes == 0) return DeviceBuffer();
    void* data = nullptr;
    const cudaError_t code =
        home_.Try([&] { return cudaMalloc(&data, static_cast<size_t>(bytes)); });
    if (code == cudaErrorMemoryAllocation) {
      ASSIGN_OR_RETURN(const int64_t free, FreeBytes());
      return Fail(ErrorCode::kResourceExhausted,
                  OutOfDeviceMemoryText(what, info_.name, bytes, free, info_.total_bytes));
    }
    RETURN_IF_ERROR(home_.Report(what, code));
    return DeviceBuffer(this, data, bytes, /*is_host=*/false);
  }

  Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) override {
    CHECK_GE(bytes, 0);
    RETURN_IF_ERROR(health_.Check());
    if (bytes == 0) return DeviceBuffer();
    void* data = nullptr;
    const cudaError_t code = home_.Try(
        [&] { return cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable); });
    if (code == cudaErrorMemoryAllocation)
      return Fail(
          ErrorCode::kResourceExhausted,
          fmt::format("{}: the host could not give {} of page-locked memory; free memory of "
                      "the host, or raise the container's limits (memory, memlock)",
                      what, DeviceBytesText(bytes)));
    RETURN_IF_ERROR(home_.Report(what, code));
    return DeviceBuffer(this, data, bytes, /*is_host=*/true);
  }

  bool Pin(void* data, int64_t bytes) override {
    return health_.Check() && home_.Try([&] {
      return cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
    }) == cudaSuccess;
  }
  void Unpin(void* data) override {
    home_.Try([&] { return cudaHostUnregister(data); });
  }

  Result<std::unique_ptr<DeviceStream>> CreateStream() override {
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(home_.Do("creating a stream", [&] {
      return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }));
    return std::make_unique<CudaStream>(home_, stream);
  }

  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(home_.Do("creating an event", [&] { return cudaEventCreate(&event); }));
    return std::make_unique<CudaEvent>(home_, event);
  }

 protected:
  void Free(void* data, bool is_host) override {
    home_.Try([&] { return is_host ? cudaFreeHost(data) : cudaFree(data); });
  }

 private:
  DeviceInfo info_;
  Health health_;
  Home home_;
};

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

Result<std::vector<DeviceInfo>> ExamineCudaDevices() {
  int driver_version = 0;
  int runtime_version = 0;
  Forget(cudaDriverGetVersion(&driver_version));
  Forget(cudaRuntimeGetVersion(&runtime_version));
  int count = 0;
  const cudaError_t counted = Forget(cudaGetDeviceCount(&count));
  if (counted != cudaSuccess || count == 0)
    return tl::unexpected<Error>(NoCudaDevice(counted, driver_version, runtime_version));

  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    const cudaError_t code = Forget(cudaGetDeviceProperties(&properties, ordinal));
    if (code != cudaSuccess)
      return tl::unexpected<Error>(
          CudaFailure(fmt::format("examining CUDA device {}", ordinal), code));
    DeviceInfo& info = devices.emplace_back();
    info.kind = DeviceKind::kCuda;
    info.ordinal = ordinal;
    info.name = properties.name;
    info.uuid = UuidText(properties.uuid);
    info.compute_major = properties.major;
    info.compute_minor = properties.minor;
    info.num_multiprocessors = properties.multiProcessorCount;
    info.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    info.l2_bytes = properties.l2CacheSize;
    info.max_shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
    info.memory_bus_bits = properties.memoryBusWidth;
    info.driver_version = driver_version;
    info.runtime_version = runtime_version;
  }
  return devices;
}

bool IsIntegratedCudaDevice(int ordinal) {
  int is_integrated = 0;
  const cudaError_t code =
      Forget(cudaDeviceGetAttribute(&is_integrated, cudaDevAttrIntegrated, ordinal));
  return code == cudaSuccess && is_integrated != 0;
}

Result<std::unique_ptr<Device>> OpenCudaDevice(int ordinal) {
  ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, ExamineCudaDevices());
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices.size())
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no CUDA device {}: the driver shows {} (0 to {}); "
                            "CUDA_VISIBLE_DEVICES chooses among those of the machine",
                            ordinal, devices.size(), devices.size() - 1));
  const DeviceInfo& info = devices[static_cast<size_t>(ordinal)];
  if (!ArchitecturesCover(SLUICE_CUDA_ARCHITECTURES, info.compute_major, info.compute_minor))
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("CUDA device {} ({}) is of compute capability {}.{}, and this program's "
                    "kernels are compiled for {}; the kernels need 8.0 or later, and other "
                    "GPUs by a build with -DSLUICE_CUDA_ARCHITECTURES",
                    ordinal, info.name, info.compute_major, info.compute_minor,
                    SLUICE_CUDA_ARCHITECTURES));
  auto device = std::make_unique<CudaDevice>(info);
  RETURN_IF_ERROR(device->Enter());
  return device;
}

}  // namespace sluice
