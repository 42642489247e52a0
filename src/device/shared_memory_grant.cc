#include "device/shared_memory_grant.h"

#include <map>
#include <mutex>
#include <utility>

#include <cuda_runtime_api.h>

namespace sluice {
namespace {

struct Grants {
  std::mutex mutex;
  std::map<std::pair<const void*, int>, unsigned> bytes;  // keyed by kernel and device
};

Grants& AllGrants() {
  // Never freed, because it is used until the last thread ends.
  static auto* const grants = new Grants;
  return *grants;
}

}  // namespace

int GrantSharedMemory(const void* kernel, int device, unsigned bytes) {
  Grants& grants = AllGrants();
  const std::lock_guard lock(grants.mutex);
  unsigned& granted = grants.bytes[{kernel, device}];
  if (bytes <= granted) return cudaSuccess;
  const cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(bytes));
  if (code == cudaSuccess)
    granted = bytes;
  else
    cudaGetLastError();
  return code;
}

}  // namespace sluice
