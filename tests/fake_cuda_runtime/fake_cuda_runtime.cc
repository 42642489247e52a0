#include "fake_cuda_runtime.h"

#include <cstdlib>
#include <cstring>

// What the runtime's handles point to.
struct CUstream_st {
  int device;
};
struct CUevent_st {
  int device;
  bool recorded = false;
};

namespace fake_cuda {
namespace {

struct Memory {
  int device;  // -1: the host's
  size_t bytes;
};

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::map<uintptr_t, Memory>& Memories() {
  static std::map<uintptr_t, Memory> memories;
  return memories;
}

cudaError_t Answer(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

// What a call answers before it does anything.
cudaError_t Begin(const char* function) {
  Machine& machine = TheMachine();
  if (machine.sticky != cudaSuccess) return Answer(machine.sticky);
  const auto found = machine.next.find(function);
  if (found == machine.next.end()) return cudaSuccess;
  const cudaError_t code = found->second;
  machine.next.erase(found);
  return Answer(code);
}

void BelongsTo(int device) {
  if (device != current_device) ++TheMachine().num_wrong_device;
}

size_t UsedBytes(int device) {
  size_t used = 0;
  for (const auto& [address, memory] : Memories())
    if (memory.device == device) used += memory.bytes;
  return used;
}

// The device whose memory holds all the bytes; -1: none.
int DeviceOf(const void* data, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto after = Memories().upper_bound(address);
  if (after == Memories().begin()) return -1;
  const auto& [begin, memory] = *std::prev(after);
  return address + bytes <= begin + memory.bytes ? memory.device : -1;
}

cudaError_t New(void** data, size_t bytes, int device) {
  if (device >= 0 && UsedBytes(device) + bytes > TheMachine().total_bytes)
    return Answer(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  Memories()[reinterpret_cast<uintptr_t>(*data)] = {device, bytes};
  ++TheMachine().num_alive;
  return cudaSuccess;
}

cudaError_t Delete(void* data) {
  if (Memories().erase(reinterpret_cast<uintptr_t>(data)) == 0)
    return Answer(cudaErrorInvalidValue);
  std::free(data);
  --TheMachine().num_alive;
  return cudaSuccess;
}

}  // namespace

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

cudaError_t LeftBehind() {
  return last_error;
}

}  // namespace fake_cuda

using fake_cuda::Answer;
using fake_cuda::Begin;
using fake_cuda::BelongsTo;
using fake_cuda::TheMachine;

#define BEGIN() \
  if (const cudaError_t code = Begin(__func__); code != cudaSuccess) return code

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t code = fake_cuda::last_error;
  fake_cuda::last_error = TheMachine().sticky;
  return code;
}
const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    default: return "cudaErrorOfAnotherName";
  }
}
const char* cudaGetErrorString(cudaError_t /*code*/) {
  return "in words";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = TheMachine().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = TheMachine().runtime_version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (TheMachine().count_error != cudaSuccess) return Answer(TheMachine().count_error);
  *count = TheMachine().num_devices;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  BEGIN();
  *properties = {};
  snprintf(properties->name, sizeof(properties->name), "Fake GPU %d", device);
  for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = static_cast<char>(0xF0 + i);
  properties->totalGlobalMem = TheMachine().total_bytes;
  properties->major = TheMachine().compute_major;
  properties->minor = TheMachine().compute_minor;
  properties->multiProcessorCount = 7;
  properties->l2CacheSize = 1 << 20;
  properties->sharedMemPerBlockOptin = 232448;
  properties->memoryBusWidth = 6144;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  BEGIN();
  fake_cuda::current_device = device;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  BEGIN();
  *total = TheMachine().total_bytes;
  *free = *total - fake_cuda::UsedBytes(fake_cuda::current_device);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  BEGIN();
  return fake_cuda::New(data, bytes, fake_cuda::current_device);
}
cudaError_t cudaFree(void* data) {
  BEGIN();
  BelongsTo(fake_cuda::DeviceOf(data, 1));
  return fake_cuda::Delete(data);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned /*flags*/) {
  BEGIN();
  return fake_cuda::New(data, bytes, -1);
}
cudaError_t cudaFreeHost(void* data) {
  BEGIN();
  return fake_cuda::Delete(data);
}
cudaError_t cudaHostRegister(void* /*data*/, size_t /*bytes*/, unsigned /*flags*/) {
  BEGIN();
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* /*data*/) {
  BEGIN();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  BEGIN();
  if (flags != cudaStreamNonBlocking) return Answer(cudaErrorInvalidValue);
  *stream = new CUstream_st{fake_cuda::current_device};
  ++TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  BEGIN();
  delete stream;
  --TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t /*event*/, unsigned /*flags*/) {
  BEGIN();
  BelongsTo(stream->device);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  const bool to_device = fake_cuda::DeviceOf(to, bytes) == stream->device;
  const bool from_device = fake_cuda::DeviceOf(from, bytes) == stream->device;
  if (to_device != (kind != cudaMemcpyDeviceToHost) ||
      from_device != (kind != cudaMemcpyHostToDevice))
    return Answer(cudaErrorInvalidValue);
  memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  if (fake_cuda::DeviceOf(to, bytes) != stream->device) return Answer(cudaErrorInvalidValue);
  memset(to, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  BEGIN();
  *event = new CUevent_st{fake_cuda::current_device};
  ++TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  BEGIN();
  delete event;
  --TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  BEGIN();
  BelongsTo(event->device);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  BEGIN();
  if (!begin->recorded || !end->recorded) return Answer(cudaErrorInvalidResourceHandle);
  *milliseconds = 2.5f;
  return cudaSuccess;
}

}  // extern "C"
