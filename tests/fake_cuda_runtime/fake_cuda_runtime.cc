#include "fake_cuda_runtime.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "device/emulated_queue.h"
#include "device/plain_tensor_map.h"

namespace fake_cuda {
namespace {

// A copy, a fill or a kernel that has not run yet.
struct Transfer {
  void* to = nullptr;          // null: a kernel
  const void* from = nullptr;  // null: a fill
  int byte = 0;                // the value of a fill
  size_t bytes = 0;
  bool is_lost = false;  // whether its memory was freed
  // The function of a kernel, and a copy of its arguments, made by the launch.
  void (*kernel)(const void* args) = nullptr;
  std::vector<unsigned char> args = {};

  bool Touches(uintptr_t begin, size_t size) const {
    const auto overlaps = [&](const void* data) {
      const auto address = reinterpret_cast<uintptr_t>(data);
      return data != nullptr && address < begin + size && begin < address + bytes;
    };
    return overlaps(to) || overlaps(from);
  }
  void Run() const {
    if (is_lost) return;
    if (kernel != nullptr)
      kernel(args.data());
    else if (from != nullptr)
      memmove(to, from, bytes);
    else
      memset(to, byte, bytes);
  }
};

// The work that a stream records instead of running it.
struct Recording {
  std::vector<Transfer> transfers;
  bool is_invalid = false;  // whether an operation could not be recorded
};

}  // namespace
}  // namespace fake_cuda

// The objects behind the runtime's handles.
struct CUgraph_st {
  std::vector<fake_cuda::Transfer> transfers;
};
struct CUgraphExec_st {
  int device;
  std::vector<fake_cuda::Transfer> transfers;
  bool is_uploaded = false;
};
struct CUstream_st {
  int device;
  std::optional<fake_cuda::Recording> recording = {};
  std::shared_ptr<sluice::EmulatedQueue> queue = std::make_shared<sluice::EmulatedQueue>();
};
struct CUevent_st {
  int device;
  std::shared_ptr<sluice::EmulatedQueue> queue = {};  // the queue that recorded it last; null: none
  int64_t count = 0;  // number of that queue's work items before the event
  bool passed() const { return queue->num_done() >= count; }
};

namespace fake_cuda {
namespace {

struct Memory {
  int device;  // -1: host memory
  size_t bytes;
};

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::map<uintptr_t, Memory>& Memories() {
  static std::map<uintptr_t, Memory> memories;
  return memories;
}

std::set<std::shared_ptr<Transfer>>& Transfers() {
  static std::set<std::shared_ptr<Transfer>> transfers;
  return transfers;
}
// Host memory that was page-locked in place: number of bytes, by address.
std::map<uintptr_t, size_t>& Registered() {
  static std::map<uintptr_t, size_t> registered;
  return registered;
}

// Marks the pending copies and fills that use this memory as lost: they never complete.
void LoseTransfers(uintptr_t begin, size_t bytes) {
  for (const std::shared_ptr<Transfer>& transfer : Transfers()) {
    if (transfer->is_lost || !transfer->Touches(begin, bytes)) continue;
    transfer->is_lost = true;
    ++TheMachine().num_gone_too_early;
  }
}

void Enqueue(cudaStream_t stream, const Transfer& what) {
  if (stream->recording) return stream->recording->transfers.push_back(what);
  auto transfer = std::make_shared<Transfer>(what);
  Transfers().insert(transfer);
  stream->queue->Enqueue([transfer] {
    transfer->Run();
    Transfers().erase(transfer);
  });
  if (TheMachine().copies_at_once) stream->queue->RunAll();
}

cudaError_t Answer(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

// Returns the error with which a call fails before it does anything.
cudaError_t Begin(const char* function) {
  Machine& machine = TheMachine();
  if (machine.sticky != cudaSuccess) {
    // A lost device runs nothing.
    for (const std::shared_ptr<Transfer>& transfer : Transfers()) transfer->is_lost = true;
    return Answer(machine.sticky);
  }
  const auto found = machine.next.find(function);
  if (found == machine.next.end()) return cudaSuccess;
  const cudaError_t code = found->second;
  machine.next.erase(found);
  return Answer(code);
}

// Calls that a graph cannot contain end its recording.
cudaError_t RefuseWhileRecording(cudaStream_t stream) {
  if (!stream->recording) return cudaSuccess;
  stream->recording->is_invalid = true;
  return Answer(cudaErrorStreamCaptureUnsupported);
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

// Returns the device whose memory contains all the bytes; -1: none.
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
  const auto found = Memories().find(reinterpret_cast<uintptr_t>(data));
  if (found == Memories().end()) return Answer(cudaErrorInvalidValue);
  LoseTransfers(found->first, found->second.bytes);
  Memories().erase(found);
  std::free(data);
  --TheMachine().num_alive;
  return cudaSuccess;
}

}  // namespace

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

void ResetMachine() {
  TheMachine() = {};
  Transfers().clear();
  Registered().clear();
}

bool Reaches(int device, const void* data, size_t bytes) {
  const int home = DeviceOf(data, bytes);
  return home == device || (home >= 0 && TheMachine().peers.contains({device, home}));
}

cudaError_t LeftBehind() {
  return last_error;
}

}  // namespace fake_cuda

using fake_cuda::Answer;
using fake_cuda::Begin;
using fake_cuda::BelongsTo;
using fake_cuda::TheMachine;

#define NOT_IN_GRAPHS(stream)                                                                \
  if (const cudaError_t code = fake_cuda::RefuseWhileRecording(stream); code != cudaSuccess) \
  return code

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
// The only function of the driver that the program asks for. The maps have our own encoding.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  BEGIN();
  const bool is_known = std::string_view(symbol) == "cuTensorMapEncodeTiled" && version >= 12000;
  const bool is_there = is_known && TheMachine().driver_version >= 12000;
  *function = is_there ? reinterpret_cast<void*>(&sluice::device::EncodePlainTensorMap) : nullptr;
  *result = is_there    ? cudaDriverEntryPointSuccess
            : !is_known ? cudaDriverEntryPointSymbolNotFound
                        : cudaDriverEntryPointVersionNotSufficent;
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
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  BEGIN();
  if (attribute != cudaDevAttrIntegrated || device >= TheMachine().num_devices)
    return Answer(cudaErrorInvalidValue);
  *value = TheMachine().is_integrated ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  BEGIN();
  const int count = TheMachine().num_devices;
  if (device < 0 || peer < 0 || device >= count || peer >= count)
    return Answer(cudaErrorInvalidDevice);
  *can = TheMachine().has_links && device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  BEGIN();
  const int device = fake_cuda::current_device;
  if (flags != 0 || peer == device) return Answer(cudaErrorInvalidValue);
  if (!TheMachine().has_links) return Answer(cudaErrorPeerAccessUnsupported);
  const bool is_new = TheMachine().peers.insert({device, peer}).second;
  return is_new ? cudaSuccess : Answer(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaSetDevice(int device) {
  BEGIN();
  fake_cuda::current_device = device;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  BEGIN();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > 232448)
    return Answer(cudaErrorInvalidValue);
  TheMachine().shared_bytes[{kernel, fake_cuda::current_device}] = value;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared,
                             cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  const auto found = TheMachine().kernels.find(kernel);
  if (found == TheMachine().kernels.end()) return Answer(cudaErrorInvalidDeviceFunction);
  if (grid.x * grid.y * grid.z == 0 || block.x == 0 || block.x > 1024)
    return Answer(cudaErrorInvalidConfiguration);
  const auto granted = TheMachine().shared_bytes.find({kernel, fake_cuda::current_device});
  const int most = granted == TheMachine().shared_bytes.end() ? 48 * 1024 : granted->second;
  if (shared > static_cast<size_t>(most)) return Answer(cudaErrorInvalidValue);
  fake_cuda::Transfer launch;
  launch.kernel = found->second.run;
  const auto* bytes = static_cast<const unsigned char*>(args[0]);
  launch.args.assign(bytes, bytes + found->second.args_bytes);
  fake_cuda::Enqueue(stream, launch);
  return cudaSuccess;
}

// The one attribute that the program uses: programmatic dependent launch.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** args) {
  BEGIN();
  if (config->numAttrs != 1 ||
      config->attrs[0].id != cudaLaunchAttributeProgrammaticStreamSerialization ||
      config->attrs[0].val.programmaticStreamSerializationAllowed != 1)
    return Answer(cudaErrorInvalidValue);
  if (TheMachine().compute_major < 9) return Answer(cudaErrorNotSupported);
  if (config->stream->recording && TheMachine().driver_version < 12030)
    return Answer(cudaErrorStreamCaptureUnsupported);
  ++TheMachine().num_overlapping;
  return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, args, config->dynamicSmemBytes,
                          config->stream);
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
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned /*flags*/) {
  BEGIN();
  const bool is_new =
      fake_cuda::Registered().emplace(reinterpret_cast<uintptr_t>(data), bytes).second;
  return is_new ? cudaSuccess : Answer(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* data) {
  BEGIN();
  const auto found = fake_cuda::Registered().find(reinterpret_cast<uintptr_t>(data));
  if (found == fake_cuda::Registered().end()) return Answer(cudaErrorHostMemoryNotRegistered);
  fake_cuda::LoseTransfers(found->first, found->second);
  fake_cuda::Registered().erase(found);
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
  if (stream->queue->num_done() < stream->queue->num_enqueued()) {
    ++TheMachine().num_gone_too_early;
    stream->queue->RunAll();  // like the runtime, completes the pending work
  }
  delete stream;
  --TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  NOT_IN_GRAPHS(stream);
  stream->queue->RunAll();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  NOT_IN_GRAPHS(stream);
  const bool is_idle = stream->queue->num_done() == stream->queue->num_enqueued();
  stream->queue->RunUntil(stream->queue->num_done() + 1);  // each query completes one piece of work
  return is_idle ? cudaSuccess : Answer(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  BEGIN();
  BelongsTo(stream->device);
  if (event->queue == nullptr || event->queue == stream->queue) return cudaSuccess;
  stream->queue->Enqueue([queue = event->queue, count = event->count] { queue->RunUntil(count); });
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
  fake_cuda::Enqueue(stream, {.to = to, .from = from, .byte = 0, .bytes = bytes});
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  if (fake_cuda::DeviceOf(to, bytes) != stream->device) return Answer(cudaErrorInvalidValue);
  fake_cuda::Enqueue(stream, {.to = to, .from = nullptr, .byte = byte, .bytes = bytes});
  return cudaSuccess;
}

// Recording excludes only the calling thread's other calls: one thread records at a time, and other
// threads are not affected.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  BEGIN();
  BelongsTo(stream->device);
  NOT_IN_GRAPHS(stream);
  if (mode != cudaStreamCaptureModeThreadLocal) return Answer(cudaErrorInvalidValue);
  stream->recording.emplace();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->recording) return Answer(cudaErrorIllegalState);
  const fake_cuda::Recording recording = *std::move(stream->recording);
  stream->recording.reset();
  BEGIN();
  BelongsTo(stream->device);
  if (recording.is_invalid) return Answer(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{recording.transfers};
  ++TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  BEGIN();
  if (nodes != nullptr) return Answer(cudaErrorInvalidValue);
  *count = graph->transfers.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long flags) {
  BEGIN();
  if (flags != 0) return Answer(cudaErrorInvalidValue);
  *made = new CUgraphExec_st{fake_cuda::current_device, graph->transfers};
  ++TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  BEGIN();
  delete graph;
  --TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  BEGIN();
  BelongsTo(graph->device);
  delete graph;
  --TheMachine().num_alive;
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  NOT_IN_GRAPHS(stream);
  graph->is_uploaded = true;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  BEGIN();
  BelongsTo(stream->device);
  if (!graph->is_uploaded) ++TheMachine().num_late_uploads;
  for (const fake_cuda::Transfer& transfer : graph->transfers) {
    // False if the memory was freed before the graph ran.
    const bool has_memory =
        transfer.kernel != nullptr ||
        (fake_cuda::DeviceOf(transfer.to, transfer.bytes) == stream->device &&
         (transfer.from == nullptr ||
          fake_cuda::DeviceOf(transfer.from, transfer.bytes) == stream->device));
    if (!has_memory) return Answer(cudaErrorIllegalAddress);
    fake_cuda::Enqueue(stream, transfer);
  }
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
  NOT_IN_GRAPHS(stream);
  event->queue = stream->queue;
  event->count = stream->queue->num_enqueued();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  BEGIN();
  BelongsTo(event->device);
  if (event->queue != nullptr) event->queue->RunUntil(event->count);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  BEGIN();
  if (begin->queue == nullptr || end->queue == nullptr)
    return Answer(cudaErrorInvalidResourceHandle);
  if (!begin->passed() || !end->passed()) return Answer(cudaErrorNotReady);
  *milliseconds = 2.5f;
  return cudaSuccess;
}

}  // extern "C"
