#include "device/hip_library.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "device/vendor_folders.h"
#include "device/vendor_library.h"

namespace sluice {
namespace {

// Flags of the runtime's header.
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kHostMallocPortable = 1;
constexpr unsigned kHostRegisterPortable = 1;
constexpr int kCopyHostToDevice = 1;
constexpr int kCopyDeviceToHost = 2;
constexpr int kCopyDeviceToDevice = 3;
constexpr int kCaptureModeThreadLocal = 1;

// The runtime's functions with arguments that gpu_runtime.h does not have.
struct RawFunctions {
  const char* (*get_error_name)(int code) = nullptr;
  const char* (*get_error_string)(int code) = nullptr;
  int (*host_malloc)(void** data, size_t bytes, unsigned flags) = nullptr;
  int (*host_register)(void* data, size_t bytes, unsigned flags) = nullptr;
  int (*stream_create_with_flags)(void** stream, unsigned flags) = nullptr;
  int (*stream_wait_event)(void* stream, void* event, unsigned flags) = nullptr;
  int (*memcpy_async)(void* to, const void* from, size_t bytes, int kind, void* stream) = nullptr;
  int (*stream_begin_capture)(void* stream, int mode) = nullptr;
  int (*graph_get_nodes)(void* graph, void** nodes, size_t* count) = nullptr;
  int (*graph_instantiate_with_flags)(void** graph, void* recorded,
                                      unsigned long long flags) = nullptr;  // NOLINT: its type
};

RawFunctions& Raw() {
  static RawFunctions functions;
  return functions;
}

template <int kKind>
int Copy(void* to, const void* from, size_t bytes, void* stream) {
  return Raw().memcpy_async(to, from, bytes, kKind, stream);
}

std::vector<std::string> UsualHipFiles() {
  std::vector<std::string> files;
  for (const std::string& folder : RocmFolders()) {
    for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6"})
      files.push_back(folder + name);
  }
  return files;
}

Result<HipLibrary> Open() {
  auto opened = VendorLibrary::Open(
      {.library = "AMD's HIP runtime (libamdhip64.so)",
       .variable = "SLUICE_HIP_RUNTIME",
       .install = "AMD's driver and ROCm's package hip-runtime-amd (6.0 or later; an MI355X needs "
                  "7.0)"},
      "", UsualHipFiles);
  if (!opened) {
    opened.error().code = ErrorCode::kUnsupported;
    return tl::unexpected<Error>(std::move(opened).error());
  }
  VendorLibrary& from = *opened;
  HipLibrary library;
  from.Resolve("hipGetDeviceCount", library.get_device_count);
  from.Resolve("hipGetDevice", library.get_device);
  from.Resolve("hipDeviceGetAttribute", library.device_attribute);
  from.Resolve("hipDeviceGetName", library.device_name);
  from.Resolve("hipDeviceTotalMem", library.device_total_memory);
  from.Resolve("hipDeviceGetUuid", library.device_uuid);
  from.Resolve("hipDriverGetVersion", library.driver_version);
  from.Resolve("hipRuntimeGetVersion", library.runtime_version);
  from.Resolve("hipModuleLoadData", library.load_module);
  from.Resolve("hipModuleGetFunction", library.module_function);
  from.Resolve("hipModuleLaunchKernel", library.launch_kernel);

  library.is_stand_in = from.Has("fake_hip_machine");

  RawFunctions& raw = Raw();
  from.Resolve("hipGetErrorName", raw.get_error_name);
  from.Resolve("hipGetErrorString", raw.get_error_string);
  from.Resolve("hipHostMalloc", raw.host_malloc);
  from.Resolve("hipHostRegister", raw.host_register);
  from.Resolve("hipStreamCreateWithFlags", raw.stream_create_with_flags);
  from.Resolve("hipStreamWaitEvent", raw.stream_wait_event);
  from.Resolve("hipMemcpyAsync", raw.memcpy_async);
  from.Resolve("hipStreamBeginCapture", raw.stream_begin_capture);
  from.Resolve("hipGraphGetNodes", raw.graph_get_nodes);
  from.Resolve("hipGraphInstantiateWithFlags", raw.graph_instantiate_with_flags);

  GpuRuntime& runtime = library.runtime;
  runtime.name = "HIP";
  from.Resolve("hipGetLastError", runtime.take_last_error);
  from.Resolve("hipSetDevice", runtime.set_device);
  from.Resolve("hipMemGetInfo", runtime.memory_info);
  from.Resolve("hipMalloc", runtime.allocate);
  from.Resolve("hipFree", runtime.free);
  from.Resolve("hipHostFree", runtime.free_host);
  from.Resolve("hipHostUnregister", runtime.unlock_host);
  from.Resolve("hipStreamDestroy", runtime.destroy_stream);
  from.Resolve("hipStreamSynchronize", runtime.wait_for_stream);
  from.Resolve("hipStreamQuery", runtime.query_stream);
  from.Resolve("hipMemsetAsync", runtime.fill);
  from.Resolve("hipStreamEndCapture", runtime.end_capture);
  from.Resolve("hipGraphDestroy", runtime.destroy_recorded);
  from.Resolve("hipGraphUpload", runtime.upload);
  from.Resolve("hipGraphLaunch", runtime.launch_graph);
  from.Resolve("hipGraphExecDestroy", runtime.destroy_graph);
  from.Resolve("hipEventCreate", runtime.create_event);
  from.Resolve("hipEventDestroy", runtime.destroy_event);
  from.Resolve("hipEventRecord", runtime.record_event);
  from.Resolve("hipEventSynchronize", runtime.wait_for_event);
  from.Resolve("hipEventElapsedTime", runtime.milliseconds_between);
  if (!from.missing().empty())
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} has no function {}: expected HIP 6.0 or later; install a later "
                            "ROCm, or name another file with SLUICE_HIP_RUNTIME",
                            from.file(), from.missing()));
  // Ranks on AMD GPUs exchange data only through RCCL.
  runtime.can_address = [](int* can, int /*ordinal*/, int /*other*/) {
    *can = 0;
    return kGpuSuccess;
  };
  runtime.let_address = [](int /*other*/) { return kGpuSuccess; };
  runtime.allocate_host = [](void** data, size_t bytes) {
    return Raw().host_malloc(data, bytes, kHostMallocPortable);
  };
  runtime.lock_host = [](void* data, size_t bytes) {
    return Raw().host_register(data, bytes, kHostRegisterPortable);
  };
  runtime.create_stream = [](void** stream) {
    return Raw().stream_create_with_flags(stream, kStreamNonBlocking);
  };
  runtime.have_stream_wait = [](void* stream, void* event) {
    return Raw().stream_wait_event(stream, event, 0);
  };
  runtime.copy_to_device = Copy<kCopyHostToDevice>;
  runtime.copy_to_host = Copy<kCopyDeviceToHost>;
  runtime.copy_on_device = Copy<kCopyDeviceToDevice>;
  runtime.begin_capture = [](void* stream) {
    return Raw().stream_begin_capture(stream, kCaptureModeThreadLocal);
  };
  runtime.count_operations = [](void* recorded, size_t* count) {
    return Raw().graph_get_nodes(recorded, nullptr, count);
  };
  runtime.instantiate = [](void** graph, void* recorded) {
    return Raw().graph_instantiate_with_flags(graph, recorded, 0);
  };
  runtime.is_fatal = IsFatalHipError;
  runtime.failure = HipFailure;
  runtime.blocking_variable = "HIP_LAUNCH_BLOCKING";
  runtime.blocking_value = "1";
  return library;
}

}  // namespace

Result<const HipLibrary*> OpenHipLibrary() {
  static const Result<HipLibrary> library = Open();
  if (!library) return tl::unexpected<Error>(library.error());
  return &*library;
}

bool IsFatalHipError(int code) {
  switch (code) {
    case kHipEccNotCorrectable:
    case kHipIllegalAddress:
    case kHipLaunchTimeOut:
    case kHipContextIsDestroyed:
    case kHipAssert:
    case kHipLaunchFailure:
    case kHipUnknown:
    case kHipRuntimeOther: return true;
    default: return false;
  }
}

Error HipFailure(const std::string& purpose, int code) {
  std::string text =
      fmt::format("{}: {} ({})", purpose, Raw().get_error_name(code), Raw().get_error_string(code));
  if (code == kHipNoBinaryForGpu || code == kHipSharedObjectInitFailed)
    text += "; this program's kernels do not run on this GPU: docs/hip.md lists the supported GPUs";
  else if (code == kGpuOutOfMemory)
    text +=
        "; the device's memory is full: end other programs that `rocm-smi --showpids` lists, or "
        "lower "
        "--gpu-memory-utilization";
  else if (code == kHipEccNotCorrectable)
    text +=
        "; the GPU reports a fault of its memory (`rocm-smi --showrasinfo all`): reset it, then "
        "restart the program";
  else if (IsFatalHipError(code))
    text +=
        "; an earlier kernel may be the cause; the device is lost to this process: restart the "
        "program";
  return {ErrorCode::kInternal, std::move(text), {}};
}

Error NoHipDevice(int code) {
  std::string text;
  if (code == kHipNoDevice || code == kGpuSuccess) {
    text =
        "AMD's driver shows no GPU: `rocminfo` must list one; this process needs /dev/kfd and "
        "/dev/dri (group render; in a container `--device /dev/kfd --device /dev/dri`)";
    for (const char* variable : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
      const char* visible = std::getenv(variable);
      if (visible != nullptr)
        text += fmt::format("; {} is '{}': unset it, or name GPUs that exist", variable, visible);
    }
  } else {
    text = fmt::format("the HIP devices could not be counted: {} ({})", Raw().get_error_name(code),
                       Raw().get_error_string(code));
    if (code == kHipInsufficientDriver)
      text += "; AMD's kernel driver (module amdgpu) is older than ROCm needs: update it";
    else if (code == kHipInitializationError || code == kHipOperatingSystem || code == kHipUnknown)
      text +=
          "; the driver does not answer this process: look at `rocminfo`, at the module amdgpu, "
          "and "
          "at the rights to /dev/kfd and /dev/dri";
  }
  return {ErrorCode::kUnsupported, std::move(text), {}};
}

}  // namespace sluice
