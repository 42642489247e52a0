#include "device/cuda_errors.h"

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "device/device_bytes.h"

namespace sluice {
namespace {

// Advice for a driver that exists but is unusable; empty for other errors.
const char* AdviceOn(cudaError_t code) {
  switch (code) {
    case cudaErrorStubLibrary:
      return "the libcuda.so.1 that was loaded is the toolkit's stub for linking: remove its "
             "folder (stubs) from LD_LIBRARY_PATH";
    case cudaErrorSystemNotReady:
      return "machines with NVSwitch need the service nvidia-fabricmanager, of the driver's "
             "version: start it (`systemctl status nvidia-fabricmanager`)";
    case cudaErrorSystemDriverMismatch:
      return "the driver's kernel module and its libcuda.so.1 have different versions: restart the "
             "machine after an update, and make sure that no library of an image precedes the "
             "host's";
    case cudaErrorCompatNotSupportedOnDevice:
      return "the image's compatibility package (cuda-compat) does not run on this GPU: remove its "
             "folder from LD_LIBRARY_PATH, or update the driver";
    case cudaErrorInitializationError:
    case cudaErrorOperatingSystem:
    case cudaErrorNotPermitted:
    case cudaErrorUnknown:
      return "the driver does not answer this process: look at `nvidia-smi`, at /dev/nvidia* and "
             "the module nvidia_uvm, and whether the container was given its GPUs (`--gpus all`)";
    default: return "";
  }
}

}  // namespace

bool IsFatalCudaError(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorExternalDevice:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

Error CudaFailure(const std::string& purpose, cudaError_t code) {
  std::string text =
      fmt::format("{}: {} ({})", purpose, cudaGetErrorName(code), cudaGetErrorString(code));
  if (code == cudaErrorNoKernelImageForDevice)
    text += "; build the program with this GPU in SLUICE_CUDA_ARCHITECTURES";
  else if (code == cudaErrorMemoryAllocation)
    text +=
        "; the device's memory is full: end other programs that `nvidia-smi` lists, or lower "
        "--gpu-memory-utilization";
  else if (code == cudaErrorDevicesUnavailable)
    text +=
        "; another program uses the GPU exclusively, or the driver is resetting it: "
        "`nvidia-smi` lists programs; then restart this one";
  else if (code == cudaErrorECCUncorrectable || code == cudaErrorNvlinkUncorrectable)
    text +=
        "; the GPU reports a fault of its hardware (`nvidia-smi -q`): reset it, then restart "
        "the program";
  else if (IsFatalCudaError(code))
    text +=
        "; an earlier kernel may be the cause; the device is lost to this process: restart the "
        "program";
  return {ErrorCode::kInternal, std::move(text), {}};
}

Error NoCudaDevice(cudaError_t code, int driver_version, int runtime_version) {
  std::string text;
  const std::string_view advice = AdviceOn(code);
  if (driver_version == 0 && code != cudaErrorStubLibrary) {
    text = fmt::format(
        "no NVIDIA driver was found (libcuda.so.1 does not load: {}); install one for CUDA {} or "
        "later, or start the container with its GPUs (`--gpus all`)",
        cudaGetErrorName(code), CudaVersionText(runtime_version));
  } else if (code == cudaErrorInsufficientDriver) {
    text = fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, and this program was built with CUDA "
        "{}; update the driver, or install the matching cuda-compat package (data-centre GPUs)",
        CudaVersionText(driver_version), CudaVersionText(runtime_version));
  } else if (code == cudaErrorNoDevice || code == cudaSuccess) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    text = "the NVIDIA driver shows no GPU";
    if (visible != nullptr)
      text += fmt::format(
          "; CUDA_VISIBLE_DEVICES is '{}': unset it, or name GPUs that `nvidia-smi -L` lists",
          visible);
    else
      text += "; `nvidia-smi -L` must list one";
  } else {
    text = fmt::format("the CUDA devices could not be counted: {} ({})", cudaGetErrorName(code),
                       cudaGetErrorString(code));
    if (driver_version != 0)
      text += fmt::format("; driver for CUDA {}, program built with CUDA {}",
                          CudaVersionText(driver_version), CudaVersionText(runtime_version));
    if (!advice.empty()) text += fmt::format("; {}", advice);
  }
  return {ErrorCode::kUnsupported, std::move(text), {}};
}

}  // namespace sluice
