#include "fake_hip.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "code_object.h"
#include "device/hip_library.h"
#include "kernels/cuda/hip_emulated.h"
#include "stream.h"

#define HIP extern "C" __attribute__((visibility("default")))

namespace fake_hip {
namespace {

enum : int {
  kInvalidValue = 1,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kLaunchOutOfResources = 701,
  kHostMemoryNotRegistered = 713,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
};

struct Memory {
  int device;  // -1: host memory
  size_t bytes;
};
struct Event {
  Stream* stream = nullptr;
  int64_t count = 0;
};
struct Function {
  const CodeKernel* code;
  const sluice::emulator::KnownKernel* emulated;
  std::string name;
};
struct Module {
  CodeObject code;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

// Returns the mutex that guards the following data.
std::mutex& Lock() {
  static std::mutex mutex;
  return mutex;
}
std::map<uintptr_t, Memory>& Memories() {
  static std::map<uintptr_t, Memory> memories;
  return memories;
}

thread_local int current_device = 0;
thread_local int last_error = 0;

Machine& TheMachine() {
  static Machine machine = [] {
    Machine made;
    if (const char* wanted = std::getenv("SLUICE_FAKE_HIP"); wanted != nullptr) {
      const std::string text = wanted;
      const size_t times = text.find('x', strlen("gfx"));
      made.architecture = text.substr(0, times);
      if (times != text.npos) made.num_devices = std::atoi(wanted + times + 1);
      if (text == "none") made.num_devices = 0;
    }
    if (const char* wanted = std::getenv("SLUICE_FAKE_HIP_ORDER"); wanted != nullptr)
      made.order = wanted;
    return made;
  }();
  return machine;
}
bool IsGfx950() {
  return TheMachine().architecture == "gfx950";
}
unsigned MostSharedBytes() {
  return IsGfx950() ? 160 * 1024 : 64 * 1024;
}

int Answer(int code) {
  if (code != 0) last_error = code;
  return code;
}
void SetOrder(const std::string& order) {
  using sluice::emulator::Order;
  if (order == "forward") return sluice::emulator::SetOrder(Order::kForward);
  if (order == "reverse") return sluice::emulator::SetOrder(Order::kReverse);
  sluice::emulator::SetOrder(Order::kSeeded, std::strtoull(order.c_str(), nullptr, 10));
}

// Returns the error that a call returns before it does anything.
int Begin(const char* function) {
  const std::lock_guard lock(Lock());
  Machine& machine = TheMachine();
  if (machine.sticky != 0) return Answer(machine.sticky);
  const auto found = machine.next.find(function);
  if (found == machine.next.end()) return 0;
  const int code = found->second;
  machine.next.erase(found);
  return Answer(code);
}
#define BEGIN() \
  if (const int code = Begin(__func__); code != 0) return code

// Returns the device whose memory contains all the bytes; -1: none.
int DeviceOf(const void* data, size_t bytes) {
  const std::lock_guard lock(Lock());
  const auto address = reinterpret_cast<uintptr_t>(data);
  auto after = Memories().upper_bound(address);
  if (after == Memories().begin()) return -1;
  const auto& [begin, memory] = *std::prev(after);
  return address + bytes <= begin + memory.bytes ? memory.device : -1;
}
size_t UsedBytes(int device) {
  size_t used = 0;
  for (const auto& [address, memory] : Memories())
    if (memory.device == device) used += memory.bytes;
  return used;
}
int New(void** data, size_t bytes, int device) {
  const std::lock_guard lock(Lock());
  if (device >= 0 && UsedBytes(device) + bytes > static_cast<size_t>(TheMachine().total_bytes))
    return Answer(sluice::kGpuOutOfMemory);
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  Memories()[reinterpret_cast<uintptr_t>(*data)] = {device, bytes};
  ++TheMachine().num_alive;
  return 0;
}
int Delete(void* data) {
  const std::lock_guard lock(Lock());
  if (Memories().erase(reinterpret_cast<uintptr_t>(data)) == 0) return Answer(kInvalidValue);
  std::free(data);
  --TheMachine().num_alive;
  return 0;
}

// Calls that a graph cannot contain end its recording.
int RefuseWhileRecording(Stream* stream) {
  if (!stream->recording) return 0;
  stream->is_invalid = true;
  return Answer(kCaptureUnsupported);
}
Stream* Of(void* stream) {
  return static_cast<Stream*>(stream);
}
// Checks that a call is for the thread's current device; prints the call if it is not.
int CheckDevice(const Stream* stream, const char* function) {
  if (stream->device == current_device) return 0;
  fprintf(stderr, "fake HIP: %s for device %d by a thread whose device is %d\n", function,
          stream->device, current_device);
  return Answer(kInvalidHandle);
}
#define BEGIN_ON(stream) \
  BEGIN();               \
  if (const int code = CheckDevice(Of(stream), __func__); code != 0) return code
#define NOT_IN_GRAPHS(stream) \
  if (const int code = RefuseWhileRecording(Of(stream)); code != 0) return code

const sluice::emulator::KnownKernel* Emulated(const std::string& name) {
  static const std::map<std::string, const void*> functions = OwnFunctions();
  const auto found = functions.find(name);
  if (found == functions.end()) return nullptr;
  for (const auto& kernel : sluice::emulator::KnownKernels())
    if (kernel.function == found->second) return &kernel;
  return nullptr;
}

}  // namespace
}  // namespace fake_hip

using namespace fake_hip;  // NOLINT: this file is that library

HIP fake_hip::Machine* fake_hip_machine() {
  return &TheMachine();
}

HIP int hipGetLastError() {
  return std::exchange(last_error, TheMachine().sticky);
}
HIP const char* hipGetErrorName(int code) {
  switch (code) {
    case kInvalidValue: return "hipErrorInvalidValue";
    case sluice::kGpuOutOfMemory: return "hipErrorOutOfMemory";
    case sluice::kHipNoDevice: return "hipErrorNoDevice";
    case sluice::kHipNoBinaryForGpu: return "hipErrorNoBinaryForGpu";
    case sluice::kHipSharedObjectInitFailed: return "hipErrorSharedObjectInitFailed";
    case sluice::kHipIllegalAddress: return "hipErrorIllegalAddress";
    case kLaunchOutOfResources: return "hipErrorLaunchOutOfResources";
    default: return "hipErrorOfAnotherName";
  }
}
HIP const char* hipGetErrorString(int /*code*/) {
  return "in words";
}
HIP int hipDriverGetVersion(int* version) {
  *version = 70051831;
  return 0;
}
HIP int hipRuntimeGetVersion(int* version) {
  *version = 70051831;
  return 0;
}
HIP int hipGetDeviceCount(int* count) {
  BEGIN();
  *count = TheMachine().num_devices;
  return *count == 0 ? Answer(sluice::kHipNoDevice) : 0;
}
HIP int hipSetDevice(int device) {
  BEGIN();
  if (device < 0 || device >= TheMachine().num_devices) return Answer(kInvalidDevice);
  current_device = device;
  return 0;
}
HIP int hipGetDevice(int* device) {
  *device = current_device;
  return 0;
}
HIP int hipDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  BEGIN();
  switch (attribute) {
    case sluice::kHipComputeMajor: *value = 9; break;
    case sluice::kHipComputeMinor: *value = IsGfx950() ? 5 : 4; break;
    case sluice::kHipMultiprocessorCount: *value = IsGfx950() ? 256 : 304; break;
    case sluice::kHipL2CacheSize: *value = 4 << 20; break;
    case sluice::kHipMaxSharedMemoryPerBlock: *value = static_cast<int>(MostSharedBytes()); break;
    case sluice::kHipMemoryBusWidth: *value = 8192; break;
    default: return Answer(kInvalidValue);
  }
  return 0;
}
HIP int hipDeviceGetName(char* name, int bytes, int device) {
  BEGIN();
  snprintf(name, static_cast<size_t>(bytes), "Fake %s %d", IsGfx950() ? "MI355X" : "MI300X",
           device);
  return 0;
}
HIP int hipDeviceTotalMem(size_t* bytes, int /*device*/) {
  BEGIN();
  *bytes = static_cast<size_t>(TheMachine().total_bytes);
  return 0;
}
HIP int hipDeviceGetUuid(sluice::HipUuid* uuid, int device) {
  BEGIN();
  char text[17];
  snprintf(text, sizeof(text), "%016x", 0xABC0u + static_cast<unsigned>(device));
  memcpy(uuid->bytes, text, sizeof(uuid->bytes));
  return 0;
}

HIP int hipMemGetInfo(size_t* free, size_t* total) {
  BEGIN();
  const std::lock_guard lock(Lock());
  *total = static_cast<size_t>(TheMachine().total_bytes);
  *free = *total - UsedBytes(current_device);
  return 0;
}
HIP int hipMalloc(void** data, size_t bytes) {
  BEGIN();
  return New(data, bytes, current_device);
}
HIP int hipFree(void* data) {
  BEGIN();
  return Delete(data);
}
HIP int hipHostMalloc(void** data, size_t bytes, unsigned /*flags*/) {
  BEGIN();
  return New(data, bytes, -1);
}
HIP int hipHostFree(void* data) {
  BEGIN();
  return Delete(data);
}
HIP int hipHostRegister(void* /*data*/, size_t /*bytes*/, unsigned /*flags*/) {
  BEGIN();
  return 0;
}
HIP int hipHostUnregister(void* /*data*/) {
  BEGIN();
  return 0;
}

HIP int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  BEGIN();
  if (flags != 1) return Answer(kInvalidValue);
  *stream = new Stream{current_device};
  const std::lock_guard lock(Lock());
  ++TheMachine().num_alive;
  return 0;
}
HIP int hipStreamDestroy(void* stream) {
  BEGIN();
  Of(stream)->queue.RunAll();
  delete Of(stream);
  const std::lock_guard lock(Lock());
  --TheMachine().num_alive;
  return 0;
}
HIP int hipStreamSynchronize(void* stream) {
  BEGIN_ON(stream);
  NOT_IN_GRAPHS(stream);
  Of(stream)->queue.RunAll();
  return 0;
}
HIP int hipStreamQuery(void* stream) {
  BEGIN_ON(stream);
  NOT_IN_GRAPHS(stream);
  auto& queue = Of(stream)->queue;
  const bool is_idle = queue.num_done() == queue.num_enqueued();
  queue.TryRunUntil(queue.num_done() + 1);  // each query completes one piece of work
  return is_idle ? 0 : Answer(sluice::kGpuNotReady);
}
HIP int hipStreamWaitEvent(void* stream, void* event, unsigned /*flags*/) {
  BEGIN_ON(stream);
  const auto* from = static_cast<Event*>(event);
  if (from->stream == nullptr || from->stream == stream) return 0;
  Enqueue(
      Of(stream), [other = from->stream, count = from->count] { other->queue.RunUntil(count); },
      false);
  return 0;
}
HIP int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  BEGIN_ON(stream);
  constexpr int kHostToDevice = 1, kDeviceToHost = 2;
  const int device = Of(stream)->device;
  if ((DeviceOf(to, bytes) == device) != (kind != kDeviceToHost) ||
      (DeviceOf(from, bytes) == device) != (kind != kHostToDevice))
    return Answer(kInvalidValue);
  Enqueue(
      Of(stream), [=] { memmove(to, from, bytes); }, false);
  return 0;
}
HIP int hipMemsetAsync(void* to, int byte, size_t bytes, void* stream) {
  BEGIN_ON(stream);
  if (DeviceOf(to, bytes) != Of(stream)->device) return Answer(kInvalidValue);
  Enqueue(
      Of(stream), [=] { memset(to, byte, bytes); }, false);
  return 0;
}

HIP int hipStreamBeginCapture(void* stream, int mode) {
  BEGIN_ON(stream);
  NOT_IN_GRAPHS(stream);
  if (mode != 1) return Answer(kInvalidValue);
  Of(stream)->recording.emplace();
  Of(stream)->is_invalid = false;
  return 0;
}
HIP int hipStreamEndCapture(void* stream, void** graph) {
  *graph = nullptr;
  if (!Of(stream)->recording) return Answer(kIllegalState);
  Graph recorded = *std::move(Of(stream)->recording);
  Of(stream)->recording.reset();
  BEGIN_ON(stream);
  if (Of(stream)->is_invalid) return Answer(kCaptureInvalidated);
  *graph = new Graph(std::move(recorded));
  const std::lock_guard lock(Lock());
  ++TheMachine().num_alive;
  return 0;
}
HIP int hipGraphGetNodes(void* graph, void** nodes, size_t* count) {
  BEGIN();
  if (nodes != nullptr) return Answer(kInvalidValue);
  *count = static_cast<Graph*>(graph)->work.size();
  return 0;
}
HIP int hipGraphInstantiateWithFlags(void** made, void* graph, unsigned long long flags) {
  BEGIN();
  if (flags != 0) return Answer(kInvalidValue);
  *made = new Graph(*static_cast<Graph*>(graph));
  const std::lock_guard lock(Lock());
  ++TheMachine().num_alive;
  return 0;
}
HIP int hipGraphDestroy(void* graph) {
  BEGIN();
  delete static_cast<Graph*>(graph);
  const std::lock_guard lock(Lock());
  --TheMachine().num_alive;
  return 0;
}
HIP int hipGraphExecDestroy(void* graph) {
  return hipGraphDestroy(graph);
}
HIP int hipGraphUpload(void* /*graph*/, void* stream) {
  BEGIN_ON(stream);
  NOT_IN_GRAPHS(stream);
  return 0;
}
HIP int hipGraphLaunch(void* graph, void* stream) {
  BEGIN_ON(stream);
  NOT_IN_GRAPHS(stream);
  for (const Work& work : static_cast<Graph*>(graph)->work) {
    TheMachine().num_replayed += work.is_kernel ? 1 : 0;
    Enqueue(Of(stream), work.run, work.is_kernel);
  }
  return 0;
}

HIP int hipEventCreate(void** event) {
  BEGIN();
  *event = new Event;
  const std::lock_guard lock(Lock());
  ++TheMachine().num_alive;
  return 0;
}
HIP int hipEventDestroy(void* event) {
  BEGIN();
  delete static_cast<Event*>(event);
  const std::lock_guard lock(Lock());
  --TheMachine().num_alive;
  return 0;
}
HIP int hipEventRecord(void* event, void* stream) {
  BEGIN_ON(stream);
  NOT_IN_GRAPHS(stream);
  *static_cast<Event*>(event) = {Of(stream), Of(stream)->queue.num_enqueued()};
  return 0;
}
HIP int hipEventSynchronize(void* event) {
  BEGIN();
  const auto* own = static_cast<Event*>(event);
  if (own->stream != nullptr) own->stream->queue.RunUntil(own->count);
  return 0;
}
HIP int hipEventElapsedTime(float* milliseconds, void* begin, void* end) {
  BEGIN();
  if (static_cast<Event*>(begin)->stream == nullptr || static_cast<Event*>(end)->stream == nullptr)
    return Answer(kInvalidHandle);
  *milliseconds = 2.5f;
  return 0;
}

HIP int hipModuleLoadData(void** module, const void* image) {
  BEGIN();
  auto loaded = std::make_unique<Module>();
  loaded->code = ReadCodeObject(image);
  if (!loaded->code.fault.empty()) {
    fprintf(stderr, "fake HIP: a code object: %s\n", loaded->code.fault.c_str());
    return Answer(kInvalidImage);
  }
  constexpr unsigned kGfx942 = 0x4C, kGfx950 = 0x4F;
  if (loaded->code.machine != (IsGfx950() ? kGfx950 : kGfx942))
    return Answer(sluice::kHipNoBinaryForGpu);
  if (!loaded->code.undefined.empty()) {
    fprintf(stderr, "fake HIP: a code object lacks %s\n", loaded->code.undefined[0].c_str());
    return Answer(sluice::kHipSharedObjectInitFailed);
  }
  *module = loaded.release();  // remains loaded until the process ends
  const std::lock_guard lock(Lock());
  ++TheMachine().num_modules;
  return 0;
}
HIP int hipModuleGetFunction(void** function, void* module, const char* name) {
  BEGIN();
  auto& own = *static_cast<Module*>(module);
  const auto code = own.code.kernels.find(name);
  const auto* emulated = Emulated(name);
  if (code == own.code.kernels.end() || emulated == nullptr) {
    fprintf(stderr, "fake HIP: kernel %s is not in the %s\n", name,
            emulated == nullptr ? "emulator" : "code object");
    return Answer(kNotFound);
  }
  const CodeKernel& kernel = code->second;
  if (kernel.num_args != 1 || kernel.args_bytes != emulated->args_bytes ||
      kernel.wave_lanes != 64) {
    fprintf(stderr, "fake HIP: kernel %s takes %u arguments of %zu bytes, in waves of %u\n", name,
            kernel.num_args, kernel.args_bytes, kernel.wave_lanes);
    return Answer(kInvalidImage);
  }
  auto& made = own.functions[name];
  made = std::make_unique<Function>(Function{&kernel, emulated, name});
  *function = made.get();
  return 0;
}
HIP int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned threads_x, unsigned threads_y, unsigned threads_z,
                              unsigned shared_bytes, void* stream, void** arguments, void** extra) {
  BEGIN_ON(stream);
  const auto& kernel = *static_cast<Function*>(function);
  if (threads_y != 1 || threads_z != 1 || extra != nullptr) return Answer(kInvalidValue);
  if (shared_bytes + kernel.code->shared_bytes > MostSharedBytes() ||
      threads_x > kernel.code->most_threads) {
    fprintf(stderr, "fake HIP: %s: %u threads (at most %u), %u bytes of LDS (at most %u)\n",
            kernel.name.c_str(), threads_x, kernel.code->most_threads, shared_bytes,
            MostSharedBytes());
    return Answer(kLaunchOutOfResources);
  }
  const auto* bytes = static_cast<const unsigned char*>(arguments[0]);
  Enqueue(
      Of(stream),
      [&kernel, grid = sluice::emulator::Grid{grid_x, grid_y, grid_z, threads_x, shared_bytes},
       args = std::vector<unsigned char>(bytes, bytes + kernel.emulated->args_bytes)] {
        sluice::emulator::SetComputeCapability(IsGfx950() ? 95 : 94);
        SetOrder(TheMachine().order);
        sluice::emulator::RunKernel(*kernel.emulated, kernel.name.c_str(), grid, args.data());
        const std::lock_guard lock(Lock());
        ++TheMachine().num_kernels;
      },
      true);
  return 0;
}
