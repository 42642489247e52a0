#include "device/cuda_device.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/architectures.h"
#include "device/cuda_errors.h"
#include "device/gpu_device.h"

#ifndef SLUICE_CUDA_ARCHITECTURES
#error "SLUICE_CUDA_ARCHITECTURES names the GPUs of the compiled kernels (cmake/Cuda.cmake)"
#endif

namespace sluice {
namespace {

static_assert(kGpuSuccess == cudaSuccess && kGpuOutOfMemory == cudaErrorMemoryAllocation &&
              kGpuNotReady == cudaErrorNotReady);

cudaStream_t Stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t Event(void* event) {
  return static_cast<cudaEvent_t>(event);
}
cudaGraph_t Recorded(void* recorded) {
  return static_cast<cudaGraph_t>(recorded);
}
cudaGraphExec_t Graph(void* graph) {
  return static_cast<cudaGraphExec_t>(graph);
}
// Creates a handle with a function of the runtime.
template <typename Handle, typename Make>
int Made(void** handle, const Make& make) {
  Handle made = nullptr;
  const cudaError_t code = make(&made);
  *handle = made;
  return code;
}
template <cudaMemcpyKind kKind>
int Copy(void* to, const void* from, size_t bytes, void* stream) {
  return cudaMemcpyAsync(to, from, bytes, kKind, Stream(stream));
}

constexpr GpuRuntime kCudaRuntime = {
    .name = "CUDA",
    .take_last_error = []() -> int { return cudaGetLastError(); },
    .set_device = [](int ordinal) -> int { return cudaSetDevice(ordinal); },
    .memory_info = [](size_t* free, size_t* total) -> int { return cudaMemGetInfo(free, total); },
    .allocate = [](void** data, size_t bytes) -> int { return cudaMalloc(data, bytes); },
    .free = [](void* data) -> int { return cudaFree(data); },
    .can_address = [](int* can, int ordinal, int other) -> int {
      return cudaDeviceCanAccessPeer(can, ordinal, other);
    },
    .let_address = [](int other) -> int {
      const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
      if (code != cudaErrorPeerAccessAlreadyEnabled) return code;
      cudaGetLastError();
      return cudaSuccess;
    },
    .allocate_host = [](void** data, size_t bytes) -> int {
      return cudaHostAlloc(data, bytes, cudaHostAllocPortable);
    },
    .free_host = [](void* data) -> int { return cudaFreeHost(data); },
    .lock_host = [](void* data, size_t bytes) -> int {
      return cudaHostRegister(data, bytes, cudaHostRegisterPortable);
    },
    .unlock_host = [](void* data) -> int { return cudaHostUnregister(data); },
    .create_stream = [](void** stream) -> int {
      return Made<cudaStream_t>(stream, [](cudaStream_t* made) {
        return cudaStreamCreateWithFlags(made, cudaStreamNonBlocking);
      });
    },
    .destroy_stream = [](void* stream) -> int { return cudaStreamDestroy(Stream(stream)); },
    .wait_for_stream = [](void* stream) -> int { return cudaStreamSynchronize(Stream(stream)); },
    .query_stream = [](void* stream) -> int { return cudaStreamQuery(Stream(stream)); },
    .have_stream_wait = [](void* stream, void* event) -> int {
      return cudaStreamWaitEvent(Stream(stream), Event(event), 0);
    },
    .copy_to_device = Copy<cudaMemcpyHostToDevice>,
    .copy_to_host = Copy<cudaMemcpyDeviceToHost>,
    .copy_on_device = Copy<cudaMemcpyDeviceToDevice>,
    .fill = [](void* to, int byte, size_t bytes, void* stream) -> int {
      return cudaMemsetAsync(to, byte, bytes, Stream(stream));
    },
    .begin_capture = [](void* stream) -> int {
      return cudaStreamBeginCapture(Stream(stream), cudaStreamCaptureModeThreadLocal);
    },
    .end_capture = [](void* stream, void** recorded) -> int {
      return Made<cudaGraph_t>(recorded, [stream](cudaGraph_t* made) {
        return cudaStreamEndCapture(Stream(stream), made);
      });
    },
    .count_operations = [](void* recorded, size_t* count) -> int {
      return cudaGraphGetNodes(Recorded(recorded), nullptr, count);
    },
    .destroy_recorded = [](void* recorded) -> int { return cudaGraphDestroy(Recorded(recorded)); },
    .instantiate = [](void** graph, void* recorded) -> int {
      return Made<cudaGraphExec_t>(graph, [recorded](cudaGraphExec_t* made) {
        return cudaGraphInstantiate(made, Recorded(recorded), 0);
      });
    },
    .upload = [](void* graph, void* stream) -> int {
      return cudaGraphUpload(Graph(graph), Stream(stream));
    },
    .launch_graph = [](void* graph, void* stream) -> int {
      return cudaGraphLaunch(Graph(graph), Stream(stream));
    },
    .destroy_graph = [](void* graph) -> int { return cudaGraphExecDestroy(Graph(graph)); },
    .create_event = [](void** event) -> int {
      return Made<cudaEvent_t>(event, [](cudaEvent_t* made) { return cudaEventCreate(made); });
    },
    .destroy_event = [](void* event) -> int { return cudaEventDestroy(Event(event)); },
    .record_event = [](void* event, void* stream) -> int {
      return cudaEventRecord(Event(event), Stream(stream));
    },
    .wait_for_event = [](void* event) -> int { return cudaEventSynchronize(Event(event)); },
    .milliseconds_between = [](float* milliseconds, void* begin, void* end) -> int {
      return cudaEventElapsedTime(milliseconds, Event(begin), Event(end));
    },
    .is_fatal = [](int code) { return IsFatalCudaError(static_cast<cudaError_t>(code)); },
    .failure = [](const std::string& purpose,
                  int code) { return CudaFailure(purpose, static_cast<cudaError_t>(code)); },
    .blocking_variable = "CUDA_LAUNCH_BLOCKING",
    .blocking_value = "1",
};

// Returns `code` and clears the runtime's last error, so that no launcher reports it.
cudaError_t Forget(cudaError_t code) {
  if (code != cudaSuccess) cudaGetLastError();
  return code;
}

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

Result<bool> OverlapsKernels(const DeviceInfo& info) {
  // CUDA graphs support overlapping launches since the driver of CUDA 12.3.
  constexpr int kFirstCapability = 90, kFirstDriver = 12030;
  const char* const value = std::getenv("SLUICE_KERNEL_OVERLAP");
  const std::string_view wanted = value == nullptr || *value == '\0' ? "1" : value;
  if (wanted != "0" && wanted != "1")
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("SLUICE_KERNEL_OVERLAP: expected 0 (no kernel begins before the one "
                            "before it ends) or 1, found \"{}\"",
                            wanted));
  return wanted == "1" && info.compute_capability() >= kFirstCapability &&
         info.driver_version >= kFirstDriver;
}

Result<std::unique_ptr<Device>> OpenCudaDevice(int ordinal) {
  ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, ExamineCudaDevices());
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices.size())
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no CUDA device {}: the driver shows {} (0 to {}); "
                            "CUDA_VISIBLE_DEVICES selects among those of the machine",
                            ordinal, devices.size(), devices.size() - 1));
  const DeviceInfo& info = devices[static_cast<size_t>(ordinal)];
  if (!ArchitecturesCover(SLUICE_CUDA_ARCHITECTURES, info.compute_major, info.compute_minor))
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("CUDA device {} ({}) is of compute capability {}.{}, and this program's "
                    "kernels are compiled for {}; the kernels need 8.0 or later; for other GPUs, "
                    "build the program with -DSLUICE_CUDA_ARCHITECTURES",
                    ordinal, info.name, info.compute_major, info.compute_minor,
                    SLUICE_CUDA_ARCHITECTURES));
  ASSIGN_OR_RETURN(const bool overlaps, OverlapsKernels(info));
  return OpenGpuDevice(kCudaRuntime, info, overlaps);
}

}  // namespace sluice
