#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda_device.h"
#include "device/device.h"
#include "device/eager_kernels.h"
#include "device/integrated_gpu.h"
#include "device/library_failure.h"
#include "device/overlapping_launch.h"
#include "device/shared_memory_grant.h"
#include "device/tensor_map.h"
#include "device/uploader.h"
#include "fake_cuda_runtime.h"

namespace sluice {
namespace {

using fake_cuda::TheMachine;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() {
    fake_cuda::ResetMachine();
    // A GPU for which the kernels are compiled, whatever the build's architectures are.
    const int first = atoi(SLUICE_CUDA_ARCHITECTURES);
    TheMachine().compute_major = first / 10;
    TheMachine().compute_minor = first % 10;
    cudaGetLastError();
  }
  // After each test, no object is left, no error that a launcher could find, and no call was for
  // another device. Memory that copies need existed until they were done.
  ~CudaDeviceTest() override {
    EXPECT_EQ(TheMachine().num_wrong_device, 0);
    EXPECT_EQ(TheMachine().num_alive, 0);
    EXPECT_EQ(TheMachine().num_gone_too_early, 0);
    EXPECT_EQ(fake_cuda::LeftBehind(), cudaSuccess);
  }

  static std::unique_ptr<Device> Open(int ordinal) {
    auto device = OpenDevice(DeviceKind::kCuda, ordinal);
    EXPECT_TRUE(device) << device.error().message;
    return *std::move(device);
  }
  static Error ListError() {
    const auto devices = ListCudaDevices();
    EXPECT_FALSE(devices);
    const auto device = OpenDevice(DeviceKind::kCuda, 0);
    EXPECT_FALSE(device);
    EXPECT_EQ(device.error().message, devices.error().message);
    EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
    return devices.error();
  }
};

TEST_F(CudaDeviceTest, ListsWhatTheDriverShows) {
  EXPECT_TRUE(BuiltWithCuda());
  const auto devices = ListCudaDevices();
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 2u);
  const DeviceInfo& info = (*devices)[1];
  EXPECT_EQ(info.kind, DeviceKind::kCuda);
  EXPECT_EQ(info.ordinal, 1);
  EXPECT_EQ(info.name, "Fake GPU 1");
  EXPECT_EQ(info.uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
  EXPECT_EQ(info.total_bytes, 1 << 20);
  EXPECT_EQ(info.max_shared_bytes, 232448);
  EXPECT_EQ(info.driver_version, 13010);
  EXPECT_EQ(info.runtime_version, 13000);
}

TEST_F(CudaDeviceTest, TellsWhetherItsMemoryIsTheHosts) {
  const auto device = Open(1);
  EXPECT_FALSE(IsIntegratedGpu(device->info()));
  TheMachine().is_integrated = true;
  EXPECT_TRUE(IsIntegratedGpu(device->info()));
  TheMachine().next["cudaDeviceGetAttribute"] = cudaErrorInvalidValue;
  EXPECT_FALSE(IsIntegratedGpu(device->info())) << "and no error is left for a launcher";
  DeviceInfo emulated;
  emulated.kind = DeviceKind::kEmulated;
  EXPECT_FALSE(IsIntegratedGpu(emulated));
}

TEST(EagerKernels, AreLoadedUnlessTheUserSaysOtherwise) {
  unsetenv("CUDA_MODULE_LOADING");
  LoadKernelsEagerly();
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "EAGER");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  LoadKernelsEagerly();
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "LAZY");
  unsetenv("CUDA_MODULE_LOADING");
}

TEST_F(CudaDeviceTest, AStreamTellsWithoutWaitingWhetherItIsIdle) {
  const auto device = OpenDevice(DeviceKind::kCuda, 1);
  ASSERT_TRUE(device);
  const auto stream = (*device)->CreateStream();
  const auto memory = (*device)->Allocate(4, "a number");
  ASSERT_TRUE(stream && memory);
  EXPECT_TRUE((*stream)->IsIdle());
  (*stream)->Fill(memory->data(), 1, 4);
  EXPECT_FALSE((*stream)->IsIdle());
  EXPECT_EQ(fake_cuda::LeftBehind(), cudaSuccess);
  EXPECT_TRUE((*stream)->Synchronize());
  EXPECT_TRUE((*stream)->IsIdle());
  (*stream)->Fill(memory->data(), 1, 4);
  TheMachine().next["cudaStreamQuery"] = cudaErrorIllegalAddress;
  EXPECT_TRUE((*stream)->IsIdle()) << "there is nothing to wait for";
  EXPECT_TRUE((*stream)->Synchronize());
}

TEST_F(CudaDeviceTest, SaysWhyThereIsNone) {
  TheMachine().driver_version = 0;
  TheMachine().count_error = cudaErrorInsufficientDriver;
  EXPECT_THAT(ListError().message, HasSubstr("no NVIDIA driver was found"));
  TheMachine().driver_version = 12040;
  EXPECT_THAT(
      ListError().message,
      HasSubstr("too old: it supports CUDA 12.4, and this program was built with CUDA 13.0; "
                "update the driver"));
  TheMachine().driver_version = 13000;
  TheMachine().count_error = cudaErrorNoDevice;
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(ListError().message, HasSubstr("shows no GPU; `nvidia-smi -L` must list one"));
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_THAT(ListError().message, HasSubstr("CUDA_VISIBLE_DEVICES is '7'"));
  unsetenv("CUDA_VISIBLE_DEVICES");
  TheMachine().count_error = cudaErrorInvalidValue;
  EXPECT_THAT(ListError().message, HasSubstr("cudaErrorInvalidValue"));
}

TEST_F(CudaDeviceTest, SaysWhatToDoAboutADriverThatCannotBeUsed) {
  const std::pair<cudaError_t, const char*> cases[] = {
      {cudaErrorSystemNotReady, "start it (`systemctl status nvidia-fabricmanager`)"},
      {cudaErrorSystemDriverMismatch, "different versions: restart the machine"},
      {cudaErrorCompatNotSupportedOnDevice, "(cuda-compat) does not run on this GPU"},
      {cudaErrorInitializationError, "/dev/nvidia*"},
      {cudaErrorUnknown, "nvidia_uvm"},
  };
  for (const auto& [code, advice] : cases) {
    TheMachine().count_error = code;
    EXPECT_THAT(ListError().message,
                AllOf(HasSubstr("could not be counted"), HasSubstr(advice),
                      HasSubstr("driver for CUDA 13.1, program built with CUDA 13.0")));
  }
  TheMachine().driver_version = 0;
  TheMachine().count_error = cudaErrorStubLibrary;
  EXPECT_THAT(ListError().message,
              AllOf(HasSubstr("from LD_LIBRARY_PATH"), Not(HasSubstr("driver for CUDA"))));
}

TEST_F(CudaDeviceTest, RefusesWhatItsKernelsDoNotRunOn) {
  TheMachine().compute_major = 7;
  TheMachine().compute_minor = 5;
  const auto old = OpenDevice(DeviceKind::kCuda, 0);
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(old.error().message, AllOf(HasSubstr("Fake GPU 0"), HasSubstr("capability 7.5"),
                                         HasSubstr(SLUICE_CUDA_ARCHITECTURES)));
  for (const int ordinal : {-1, 2}) {
    const auto absent = OpenDevice(DeviceKind::kCuda, ordinal);
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(absent.error().message, HasSubstr("the driver shows 2 (0 to 1)"));
  }
}

TEST_F(CudaDeviceTest, AContextThatCannotBeMadeIsAnError) {
  TheMachine().next["cudaSetDevice"] = cudaErrorDevicesUnavailable;
  const auto device = OpenDevice(DeviceKind::kCuda, 0);
  ASSERT_FALSE(device);
  EXPECT_THAT(device.error().message, HasSubstr("selecting CUDA device 0 (Fake GPU 0)"));
  // Other programs hold all of the memory.
  TheMachine().next["cudaSetDevice"] = cudaErrorMemoryAllocation;
  const auto full = OpenDevice(DeviceKind::kCuda, 0);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, AllOf(HasSubstr("selecting CUDA device 0 (Fake GPU 0)"),
                                          HasSubstr("the device's memory is full")));
}

TEST_F(CudaDeviceTest, NamesWhatDidNotFit) {
  const auto device = Open(0);
  auto memory = device->Allocate(600 << 10, "weights");
  ASSERT_TRUE(memory);
  EXPECT_EQ(*device->FreeBytes(), 424 << 10);
  const auto refused = device->Allocate(500 << 10, "the KV cache");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("the KV cache: 512000 bytes of device memory are needed"),
                    HasSubstr("1.00 MiB of Fake GPU 0 only 434176 bytes are free")));
  EXPECT_EQ(fake_cuda::LeftBehind(), cudaSuccess);
  *memory = DeviceBuffer();
  EXPECT_TRUE(device->Allocate(500 << 10, "the KV cache"));

  TheMachine().next["cudaHostAlloc"] = cudaErrorMemoryAllocation;
  const auto pinned = device->AllocatePinned(1 << 20, "a buffer for uploads");
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(pinned.error().message, HasSubstr("a buffer for uploads: the host could not give"));

  TheMachine().next["cudaMalloc"] = cudaErrorInvalidValue;
  const auto other = device->Allocate(1, "the workspace");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInternal);
  EXPECT_THAT(other.error().message, HasSubstr("the workspace: cudaErrorInvalidValue (in words)"));
}

TEST_F(CudaDeviceTest, TheDriverDescribesTensors) {
  alignas(64) device::TensorMap map;
  alignas(16) static unsigned char memory[16];
  const uint64_t sizes[2] = {256, 40}, strides[1] = {256};
  const uint32_t box[2] = {128, 64}, too_wide[2] = {144, 64};
  const auto encode = [&](const uint32_t(&tile)[2]) {
    return EncodeTensorMap(&map, memory, sizes, strides, tile);
  };
  TheMachine().driver_version = 11080;
  EXPECT_EQ(encode(box), cudaErrorNotSupported);
  TheMachine().driver_version = 13010;
  TheMachine().next["cudaGetDriverEntryPointByVersion"] = cudaErrorInitializationError;
  EXPECT_EQ(encode(box), cudaErrorInitializationError);
  ASSERT_EQ(encode(box), 0);
  device::PlainTensorMap plain;
  memcpy(&plain, &map, sizeof(plain));
  EXPECT_EQ(plain.magic, device::PlainTensorMap::kMagic);
  EXPECT_EQ(plain.address, reinterpret_cast<uint64_t>(memory));
  EXPECT_EQ(plain.sizes[1], 40u);
  EXPECT_EQ(plain.strides[1], 256u);
  EXPECT_EQ(plain.box[1], 64u);
  EXPECT_EQ(plain.swizzle, device::TensorSwizzle::k128);
  EXPECT_EQ(encode(too_wide), 1);
}

TEST_F(CudaDeviceTest, SelectsItsDeviceInEveryThread) {
  const auto device = Open(1);
  const auto memory = device->Allocate(4, "test");
  const auto stream = *device->CreateStream();
  const auto event = *device->CreateEvent();
  std::thread([&] {  // begins with device 0
    int32_t number = 7;
    int32_t back = 0;
    stream->CopyToDevice(memory->data(), &number, 4);
    stream->CopyToHost(&back, memory->data(), 4);
    stream->Record(*event);
    EXPECT_TRUE(stream->Synchronize());
    EXPECT_EQ(back, 7);
  })
      .join();
  std::thread([&] {
    stream->handle();  // a launch would come next
    EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream->handle().native)),
              cudaSuccess);
  }).join();
  std::thread([&] { EXPECT_TRUE(event->Synchronize()); }).join();
  std::thread([&] { EXPECT_EQ(*device->FreeBytes(), (1 << 20) - 4); }).join();
}

TEST_F(CudaDeviceTest, ReportsTheFirstLaunchThatFailed) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  *stream->handle().failure = {"Attention", cudaErrorInvalidConfiguration};
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_EQ(status.error().message,
            "launching kernel Attention: cudaErrorInvalidConfiguration (in words)");
  EXPECT_TRUE(stream->Synchronize());
}

// A launch reports only that a kernel before it failed, and which kernels those were.
TEST_F(CudaDeviceTest, ALaunchIsNotBlamedForKernelsBeforeIt) {
  const auto names = [](LaunchFailure& failure, unsigned count) {
    constexpr const char* kNames[] = {"zero", "one", "two",   "three", "four",
                                      "five", "six", "seven", "eight", "nine"};
    for (unsigned i = 0; i < count; ++i)
      failure.launched[failure.num_launched++ % LaunchFailure::kRemembered] = kNames[i];
  };
  for (const bool waits : {false, true}) {
    fake_cuda::ResetMachine();
    const auto device = Open(0);
    const auto stream = *device->CreateStream();
    LaunchFailure& failure = *stream->handle().failure;
    names(failure, 10);
    failure.kernel = "rms_norm";
    failure.code = cudaErrorIllegalAddress;
    if (waits) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const Status status = stream->Synchronize();
    unsetenv("CUDA_LAUNCH_BLOCKING");
    ASSERT_FALSE(status);
    const std::string& said = status.error().message;
    if (waits) {
      EXPECT_THAT(said, HasSubstr("running kernel rms_norm: cudaErrorIllegalAddress"));
    } else {
      EXPECT_THAT(said, AllOf(HasSubstr("a kernel before rms_norm failed"),
                              HasSubstr("two, three, four, five, six, seven, eight, nine"),
                              Not(HasSubstr("one,")), HasSubstr("CUDA_LAUNCH_BLOCKING=1")));
    }
    EXPECT_FALSE(device->CheckAlive());
  }
  // The wait that finds the failure also names the kernels.
  fake_cuda::ResetMachine();
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  names(*stream->handle().failure, 1);
  TheMachine().next["cudaStreamSynchronize"] = cudaErrorIllegalAddress;
  EXPECT_THAT(stream->Synchronize().error().message, HasSubstr("last launched kernels: zero;"));
}

TEST_F(CudaDeviceTest, AFailureOfALibraryIsNotTheDevicesEnd) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  *stream->handle().failure = {"cublasLtMatmul", kFailedInLibrary};
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "cublasLtMatmul failed; the log tells its library's reason");
  EXPECT_TRUE(device->CheckAlive());
  EXPECT_TRUE(stream->Synchronize());
  // Unless the device reports that the launch itself failed.
  *stream->handle().failure = {"cublasLtMatmul", kFailedInLibrary};
  TheMachine().next["cudaStreamSynchronize"] = cudaErrorIllegalAddress;
  EXPECT_THAT(stream->Synchronize().error().message,
              HasSubstr("launching kernel cublasLtMatmul: cudaErrorIllegalAddress"));
  EXPECT_FALSE(device->CheckAlive());
}

TEST_F(CudaDeviceTest, ReportsTheFirstCopyThatFailed) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  const auto memory = device->Allocate(64, "test");
  char host[64] = {};
  stream->CopyToDevice(host, host, 64);
  stream->Fill(host, 0, 64);
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "copying 64 bytes to the device: cudaErrorInvalidValue (in words)");
  stream->CopyToDevice(memory->data(), host, 64);
  EXPECT_TRUE(stream->Synchronize());
}

TEST_F(CudaDeviceTest, MeasuresTheTimeBetweenEvents) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  const auto begin = *device->CreateEvent();
  const auto end = *device->CreateEvent();
  EXPECT_FALSE(end->SecondsSince(*begin));
  const auto memory = device->Allocate(64, "test");
  stream->Record(*begin);
  stream->Fill(memory->data(), 1, 64);
  stream->Record(*end);
  EXPECT_FALSE(end->SecondsSince(*begin)) << "not passed yet";
  ASSERT_TRUE(end->Synchronize());
  EXPECT_NEAR(*end->SecondsSince(*begin), 2.5e-3, 1e-9);
}

TEST_F(CudaDeviceTest, ASmallerGrantOfSharedMemoryTakesBackNoLargerOne) {
  // Kernels are identified by address. Grants outlive a test, so each run has separate kernels.
  static std::vector<std::unique_ptr<int>> kernels;
  const int* const first = kernels.emplace_back(std::make_unique<int>()).get();
  const int* const second = kernels.emplace_back(std::make_unique<int>()).get();
  const auto grant = [](const void* kernel, int device, unsigned bytes) {
    int code = -1;
    std::thread([&] {
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      code = GrantSharedMemory(kernel, device, bytes);
      EXPECT_EQ(fake_cuda::LeftBehind(), cudaSuccess);
    }).join();
    return code;
  };
  EXPECT_EQ(grant(first, 0, 100'000), cudaSuccess);
  EXPECT_EQ(grant(first, 0, 60'000), cudaSuccess);
  EXPECT_EQ(grant(first, 1, 70'000), cudaSuccess);
  EXPECT_EQ(grant(second, 0, 50'000), cudaSuccess);
  EXPECT_EQ(grant(second, 0, 80'000), cudaSuccess);
  EXPECT_EQ(grant(second, 0, 1'000'000), cudaErrorInvalidValue);
  const auto& granted = TheMachine().shared_bytes;
  EXPECT_EQ(granted.at({first, 0}), 100'000);
  EXPECT_EQ(granted.at({first, 1}), 70'000);
  EXPECT_EQ(granted.at({second, 0}), 80'000);
}

// Tests both choices of the runtime: copies run when somebody waits for them, or immediately.
class CopyTimeTest : public CudaDeviceTest, public testing::WithParamInterface<bool> {
 protected:
  CopyTimeTest() { TheMachine().copies_at_once = GetParam(); }

  static std::vector<char> Source(size_t size) {
    std::vector<char> source(size);
    for (size_t i = 0; i < size; ++i) source[i] = static_cast<char>(i * 7 + i / 256);
    return source;
  }
};

INSTANTIATE_TEST_SUITE_P(, CopyTimeTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Early" : "Late"; });

TEST_P(CopyTimeTest, StreamsMeetAtEvents) {
  const auto device = Open(1);
  const auto writer = *device->CreateStream(), reader = *device->CreateStream();
  const auto written = *device->CreateEvent(), read = *device->CreateEvent();
  const auto memory = device->Allocate(4, "test"), in = device->AllocatePinned(4, "test"),
             out = device->AllocatePinned(4, "test");
  for (int32_t round = 1; round <= 3; ++round) {
    *in->As<int32_t>() = round;
    writer->WaitFor(*read);  // in the first round, no record exists
    writer->CopyToDevice(memory->data(), in->data(), 4);
    writer->Record(*written);
    reader->WaitFor(*written);
    reader->CopyToHost(out->data(), memory->data(), 4);
    reader->Record(*read);
    ASSERT_TRUE(read->Synchronize());
    EXPECT_EQ(*out->As<int32_t>(), round);
  }
}

// A graph does the recorded work each time it runs, with the memory's content at that time, and
// does nothing before.
TEST_P(CopyTimeTest, GraphsReplayWhatWasRecorded) {
  const auto device = Open(1);
  const auto stream = *device->CreateStream();
  const auto a = device->Allocate(64, "a"), b = device->Allocate(64, "b");
  const auto in = device->AllocatePinned(64, "in"), out = device->AllocatePinned(64, "out");
  stream->Fill(b->data(), 9, 64);
  ASSERT_TRUE(stream->BeginCapture());
  stream->CopyOnDevice(b->data(), a->data(), 32);
  stream->Fill(b->As<char>() + 32, 7, 16);
  const auto graph = stream->EndCapture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->num_operations(), 2);
  const auto look = [&] {
    stream->CopyToHost(out->data(), b->data(), 64);
    EXPECT_TRUE(stream->Synchronize());
    return std::vector<int>{out->As<char>()[0], out->As<char>()[31], out->As<char>()[32],
                            out->As<char>()[47], out->As<char>()[48]};
  };
  EXPECT_EQ(look(), (std::vector<int>{9, 9, 9, 9, 9})) << "recording runs nothing";
  for (const char number : {3, 4}) {
    memset(in->data(), number, 64);
    stream->CopyToDevice(a->data(), in->data(), 64);
    stream->Replay(**graph);
    EXPECT_EQ(look(), (std::vector<int>{number, number, 7, 7, 9}));
  }
  EXPECT_EQ(TheMachine().num_late_uploads, 0);
}

struct AddArgs {
  int* total;
  int number;
};
void RunAdd(const void* args) {
  AddArgs add;
  memcpy(&add, args, sizeof(add));
  *add.total += add.number;
}

// A replay runs each captured kernel with the arguments that were copied at capture.
TEST_P(CopyTimeTest, GraphsReplayKernels) {
  const auto device = Open(1);
  const auto stream = *device->CreateStream();
  const auto total = device->Allocate(sizeof(int), "total");
  const auto out = device->AllocatePinned(sizeof(int), "out");
  // The kernel is identified by the address of this number. Each run uses another number, because a
  // kernel's grants last as long as the process.
  static const int kKernels[2] = {};
  const int& kernel = kKernels[GetParam() ? 1 : 0];
  TheMachine().kernels[&kernel] = {RunAdd, sizeof(AddArgs)};
  const auto launch = [&](int number, size_t shared_bytes) {
    AddArgs args{total->As<int>(), number};
    void* list[] = {&args};
    const StreamHandle handle = stream->handle();
    const cudaError_t code = cudaLaunchKernel(&kernel, dim3(1), dim3(32), list, shared_bytes,
                                              static_cast<cudaStream_t>(handle.native));
    cudaGetLastError();
    return code;
  };
  const auto look = [&] {
    stream->CopyToHost(out->data(), total->data(), sizeof(int));
    EXPECT_TRUE(stream->Synchronize());
    return *out->As<int>();
  };
  stream->Fill(total->data(), 0, sizeof(int));
  EXPECT_EQ(launch(1, 0), cudaSuccess);
  EXPECT_EQ(look(), 1);
  ASSERT_TRUE(stream->BeginCapture());
  EXPECT_EQ(launch(10, 0), cudaSuccess);
  EXPECT_EQ(launch(100, 64 << 10), cudaErrorInvalidValue) << "more than was granted";
  EXPECT_EQ(GrantSharedMemory(&kernel, 1, 64 << 10), cudaSuccess) << "allowed while recording";
  EXPECT_EQ(launch(100, 64 << 10), cudaSuccess);
  const auto graph = stream->EndCapture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->num_operations(), 2);
  EXPECT_EQ(look(), 1) << "recording runs nothing";
  for (const int expected : {111, 221}) {
    stream->Replay(**graph);
    EXPECT_EQ(look(), expected);
  }
  EXPECT_EQ(launch(1000, 0), cudaSuccess);
  EXPECT_EQ(look(), 1221);
}

// Sets SLUICE_KERNEL_OVERLAP while it lives.
class ScopedOverlap {
 public:
  explicit ScopedOverlap(const char* value) { setenv("SLUICE_KERNEL_OVERLAP", value, 1); }
  ~ScopedOverlap() { unsetenv("SLUICE_KERNEL_OVERLAP"); }
};

TEST_F(CudaDeviceTest, KernelsOverlapWhereGpuAndDriverAndUserAllowIt) {
  DeviceInfo info;
  const auto overlaps = [&info](int major, int minor, int driver) {
    info.compute_major = major;
    info.compute_minor = minor;
    info.driver_version = driver;
    return *OverlapsKernels(info);
  };
  EXPECT_TRUE(overlaps(9, 0, 13000));
  EXPECT_FALSE(overlaps(9, 0, 12020)) << "its graphs hold no such launches";
  EXPECT_FALSE(overlaps(8, 9, 13000));
  EXPECT_TRUE(overlaps(12, 0, 13000));
  {
    const ScopedOverlap overlap("0");
    EXPECT_FALSE(*OverlapsKernels(info));
  }
  const ScopedOverlap overlap("off");
  const auto found = OverlapsKernels(info);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, AllOf(HasSubstr("SLUICE_KERNEL_OVERLAP"), HasSubstr("off")));
  EXPECT_FALSE(OpenDevice(DeviceKind::kCuda, 0));
}

TEST_F(CudaDeviceTest, StreamsSayWhetherKernelsOverlap) {
  const auto overlaps = [] {
    const auto device = Open(0);
    return (*device->CreateStream())->handle().overlaps;
  };
  EXPECT_EQ(overlaps(), TheMachine().compute_major >= 9);
  const ScopedOverlap overlap("0");
  EXPECT_FALSE(overlaps());
}

TEST_P(CopyTimeTest, GraphsReplayKernelsThatOverlap) {
  TheMachine().compute_major = 9;
  CUstream_st* native = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), cudaSuccess);
  int total = 0;
  const int kernel = 0;  // its address identifies the kernel
  TheMachine().kernels[&kernel] = {RunAdd, sizeof(AddArgs)};
  const auto launch = [&](unsigned threads = 32) {
    const AddArgs args{&total, 1};
    return LaunchOverlapping({&kernel, 1, 1, 1, threads, 0, native, &args});
  };
  EXPECT_EQ(launch(), cudaSuccess);
  EXPECT_EQ(TheMachine().num_overlapping, 1);
  EXPECT_EQ(launch(2048), cudaErrorInvalidConfiguration);
  EXPECT_EQ(fake_cuda::LeftBehind(), cudaSuccess) << "a failure is returned, not left behind";
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(launch(), cudaSuccess);
  cudaGraph_t recorded = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &recorded), cudaSuccess);
  cudaGraphExec_t graph = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&graph, recorded, 0), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(native), cudaSuccess);
  EXPECT_EQ(total, 1);
  ASSERT_EQ(cudaGraphLaunch(graph, native), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(native), cudaSuccess);
  EXPECT_EQ(total, 2);
  TheMachine().compute_major = 8;
  EXPECT_EQ(launch(), cudaErrorNotSupported);
  cudaGraphDestroy(recorded);
  cudaGraphExecDestroy(graph);
  cudaStreamDestroy(native);
}

TEST_F(CudaDeviceTest, DevicesAddressEachOtherIfTheyAreLinked) {
  const auto first = Open(0), second = Open(1);
  EXPECT_TRUE(first->LetAddress(*second));
  EXPECT_TRUE(first->LetAddress(*second)) << "again";
  EXPECT_TRUE(first->LetAddress(*first));
  EXPECT_EQ(TheMachine().peers, (std::set<std::pair<int, int>>{{0, 1}})) << "one way at a time";
  TheMachine().next["cudaDeviceEnablePeerAccess"] = cudaErrorTooManyPeers;
  EXPECT_FALSE(second->LetAddress(*first));
  TheMachine().next["cudaDeviceCanAccessPeer"] = cudaErrorInvalidDevice;
  EXPECT_FALSE(second->LetAddress(*first));
  EXPECT_TRUE(second->LetAddress(*first)) << "neither left an error behind";
  TheMachine().peers.clear();
  TheMachine().has_links = false;
  EXPECT_FALSE(first->LetAddress(*second));
  EXPECT_THAT(TheMachine().peers, testing::IsEmpty());
}

// Does what a kernel of an exchange does, but without waiting: increments its own number, and
// stores it where each rank can read it.
struct RaiseArgs {
  int device;
  int* number;
  int* flags[2];
};
void RunRaise(const void* args) {
  RaiseArgs raise;
  memcpy(&raise, args, sizeof(raise));
  ++*raise.number;
  for (int* const flag : raise.flags) {
    ASSERT_TRUE(fake_cuda::Reaches(raise.device, flag, sizeof(int)));
    flag[raise.device] = *raise.number;
  }
}

// Graphs of two ranks store into each other's memory, each time anew.
TEST_P(CopyTimeTest, GraphsOfRanksRaiseEachOthersFlags) {
  static const int kKernels[2] = {};
  const int& kernel = kKernels[GetParam() ? 1 : 0];
  TheMachine().kernels[&kernel] = {RunRaise, sizeof(RaiseArgs)};
  std::unique_ptr<Device> devices[] = {Open(0), Open(1)};
  std::unique_ptr<DeviceStream> streams[2];
  DeviceBuffer memory[2], out[2];
  std::unique_ptr<DeviceGraph> graphs[2];
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(devices[i]->LetAddress(*devices[1 - i]));
    streams[i] = *devices[i]->CreateStream();
    memory[i] = *devices[i]->Allocate(3 * sizeof(int), "a number and two flags");
    out[i] = *devices[i]->AllocatePinned(3 * sizeof(int), "out");
    streams[i]->Fill(memory[i].data(), 0, 3 * sizeof(int));
    EXPECT_TRUE(streams[i]->Synchronize());
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(streams[i]->BeginCapture());
    RaiseArgs args{i, memory[i].As<int>(), {memory[0].As<int>() + 1, memory[1].As<int>() + 1}};
    void* list[] = {&args};
    for (int exchange = 0; exchange < 2; ++exchange) {
      const StreamHandle handle = streams[i]->handle();
      EXPECT_EQ(cudaLaunchKernel(&kernel, dim3(1), dim3(32), list, 0,
                                 static_cast<cudaStream_t>(handle.native)),
                cudaSuccess);
    }
    auto graph = streams[i]->EndCapture();
    ASSERT_TRUE(graph) << graph.error().message;
    graphs[i] = *std::move(graph);
  }
  for (const int step : {1, 2, 3}) {
    for (int i = 0; i < 2; ++i) streams[i]->Replay(*graphs[i]);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(streams[i]->Synchronize());
    for (int i = 0; i < 2; ++i) {
      streams[i]->CopyToHost(out[i].data(), memory[i].data(), 3 * sizeof(int));
      EXPECT_TRUE(streams[i]->Synchronize());
      for (int word = 0; word < 3; ++word) EXPECT_EQ(out[i].As<int>()[word], 2 * step) << word;
    }
  }
}

// Whatever fails, the stream works afterwards and no resource is leaked.
TEST_F(CudaDeviceTest, AGraphThatCannotBeMadeIsAnErrorAlone) {
  const auto device = Open(1);
  const auto stream = *device->CreateStream();
  const auto memory = device->Allocate(64, "test");
  TheMachine().next["cudaStreamBeginCapture"] = cudaErrorInvalidValue;
  EXPECT_THAT(stream->BeginCapture().error().message, HasSubstr("beginning to record a graph"));
  const std::pair<const char*, const char*> calls[] = {
      {"cudaMemsetAsync", "filling 64 bytes of the device"},
      {"cudaStreamEndCapture", "recording a graph"},
      {"cudaGraphGetNodes", "counting what a graph does"},
      {"cudaGraphInstantiate", "making a graph of the captured launches"},
      {"cudaGraphUpload", "bringing a graph to the device"},
  };
  const auto fill = [&] { stream->Fill(memory->data(), 1, 64); };
  for (const auto& [call, message] : calls) {
    ASSERT_TRUE(stream->BeginCapture());
    TheMachine().next[call] = cudaErrorMemoryAllocation;
    fill();
    const auto graph = stream->EndCapture();
    ASSERT_FALSE(graph) << call;
    EXPECT_THAT(graph.error().message, HasSubstr(message));
    fill();
    EXPECT_TRUE(stream->Synchronize()) << call;
  }
  // A launch was refused.
  ASSERT_TRUE(stream->BeginCapture());
  *stream->handle().failure = {"Attention", cudaErrorInvalidConfiguration};
  EXPECT_THAT(stream->EndCapture().error().message, HasSubstr("launching kernel Attention"));
  // A call cannot be recorded.
  ASSERT_TRUE(stream->BeginCapture());
  fill();
  EXPECT_FALSE(stream->Synchronize());
  EXPECT_THAT(stream->EndCapture().error().message, HasSubstr("recording a graph"));
  const auto event = *device->CreateEvent();
  ASSERT_TRUE(stream->BeginCapture());
  stream->Record(*event);
  EXPECT_THAT(stream->EndCapture().error().message, HasSubstr("recording an event"));
  fill();
  EXPECT_TRUE(stream->Synchronize());
}

TEST_F(CudaDeviceTest, AGraphThatFailsIsNamed) {
  const auto device = Open(1);
  const auto memory = device->Allocate(64, "test");
  const auto stream = *device->CreateStream();
  ASSERT_TRUE(stream->BeginCapture());
  stream->Fill(memory->data(), 1, 64);
  const auto graph = stream->EndCapture();
  ASSERT_TRUE(graph);
  TheMachine().next["cudaGraphLaunch"] = cudaErrorInvalidValue;
  stream->Replay(**graph);
  EXPECT_THAT(stream->Synchronize().error().message, HasSubstr("launching a graph"));
  stream->Replay(**graph);
  EXPECT_TRUE(stream->Synchronize());
  stream->Replay(**graph);
  TheMachine().next["cudaStreamSynchronize"] = cudaErrorIllegalAddress;
  EXPECT_THAT(stream->Synchronize().error().message, HasSubstr("last launched kernels: a graph;"));
}

TEST_P(CopyTimeTest, StreamsEndBeforeWhatTheyUse) {
  const auto device = Open(1);
  const auto memory = device->Allocate(64, "test"), pinned = device->AllocatePinned(64, "test");
  char host[64];
  ASSERT_TRUE(device->Pin(host, 64));
  {
    const auto stream = *device->CreateStream();
    stream->Fill(memory->data(), 5, 64);
    stream->CopyToHost(pinned->data(), memory->data(), 64);
    stream->CopyToHost(host, memory->data(), 64);
  }
  EXPECT_EQ(*pinned->As<char>(), 5);
  EXPECT_EQ(host[63], 5);
  device->Unpin(host);
}

TEST_P(CopyTimeTest, UploadsRefillNothingThatIsOnItsWay) {
  const auto device = Open(1);
  const auto memory = device->Allocate(100'000, "weights");
  ThreadPool pool(2);
  const std::vector<char> source = Source(100'000);
  auto uploader = Uploader::Create(*device, 4096);
  ASSERT_TRUE(uploader);
  ASSERT_TRUE(uploader->Copy(pool, memory->data(), source.data(), 100'000));
  ASSERT_TRUE(uploader->Finish());
  EXPECT_EQ(memcmp(memory->data(), source.data(), 100'000), 0);
}

// Code that gives up an upload may free the upload's destination.
TEST_P(CopyTimeTest, UploadsEndWithTheirUploader) {
  const auto device = Open(0);
  ThreadPool pool(2);
  const std::vector<char> source = Source(10'000);
  const auto memory = device->Allocate(20'000, "weights");
  const auto begin = [&](int64_t to) {
    auto uploader = Uploader::Create(*device, 4096);
    EXPECT_TRUE(uploader);
    EXPECT_TRUE(uploader->Copy(pool, memory->As<char>() + to, source.data(), 10'000));
    return *std::move(uploader);
  };
  {
    Uploader first = begin(0);
    first = begin(10'000);  // the one before ends here
    EXPECT_EQ(memcmp(memory->data(), source.data(), 10'000), 0);
    EXPECT_FALSE(first.Fill(memory->data(), 100, [](std::byte*, int64_t, int64_t) {
      return Status(Fail(ErrorCode::kInvalidData, "the file ends here"));
    }));
  }
  EXPECT_EQ(memcmp(memory->As<char>() + 10'000, source.data(), 10'000), 0);
}

// A failed wait says nothing about the copies.
TEST_P(CopyTimeTest, UploadsKeepWhatTheyCouldNotWaitFor) {
  const auto device = Open(0);
  ThreadPool pool(2);
  const std::vector<char> source = Source(4 * 4096);
  const auto memory = device->Allocate(4 * 4096, "weights");
  auto uploader = Uploader::Create(*device, 4096);
  ASSERT_TRUE(uploader);
  const auto copy = [&](int64_t chunk) {
    const int64_t at = chunk * 4096;
    return uploader->Copy(pool, memory->As<char>() + at, source.data() + at, 4096);
  };
  ASSERT_TRUE(copy(0));
  ASSERT_TRUE(copy(1));
  TheMachine().next["cudaEventSynchronize"] = cudaErrorInvalidConfiguration;
  EXPECT_FALSE(copy(2));
  ASSERT_TRUE(copy(2));
  TheMachine().next["cudaStreamSynchronize"] = cudaErrorInvalidConfiguration;
  EXPECT_FALSE(uploader->Finish());
  ASSERT_TRUE(copy(3));
  ASSERT_TRUE(uploader->Finish());
  EXPECT_EQ(memcmp(memory->data(), source.data(), source.size()), 0);
}

TEST_F(CudaDeviceTest, PinningFailsSoftly) {
  const auto device = Open(0);
  char host[64];
  TheMachine().next["cudaHostRegister"] = cudaErrorInvalidValue;
  EXPECT_FALSE(device->Pin(host, 64));
  EXPECT_EQ(fake_cuda::LeftBehind(), cudaSuccess);
  EXPECT_TRUE(device->Pin(host, 64));
  device->Unpin(host);
}

TEST_F(CudaDeviceTest, ALostDeviceFailsForEver) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  const auto event = *device->CreateEvent();
  auto memory = device->Allocate(64, "test");
  TheMachine().next["cudaStreamSynchronize"] = cudaErrorInvalidConfiguration;
  EXPECT_FALSE(stream->Synchronize());
  EXPECT_TRUE(device->CheckAlive()) << "a step that failed is not the device's end";
  TheMachine().sticky = cudaErrorIllegalAddress;
  const Status first = stream->Synchronize();
  ASSERT_FALSE(first);
  EXPECT_EQ(device->CheckAlive().error().message, first.error().message);
  EXPECT_THAT(first.error().message,
              AllOf(HasSubstr("running a stream's kernels and copies: cudaErrorIllegalAddress"),
                    HasSubstr("restart the program")));
  // The error stays even if the runtime has forgotten it.
  TheMachine().sticky = cudaSuccess;
  cudaGetLastError();
  EXPECT_EQ(stream->Synchronize().error().message, first.error().message);
  EXPECT_EQ(event->Synchronize().error().message, first.error().message);
  EXPECT_EQ(device->Allocate(1, "test").error().message, first.error().message);
  EXPECT_EQ(device->AllocatePinned(1, "test").error().message, first.error().message);
  EXPECT_EQ(device->CreateStream().error().message, first.error().message);
  EXPECT_EQ(device->CreateEvent().error().message, first.error().message);
  EXPECT_EQ(device->FreeBytes().error().message, first.error().message);
  char host[8];
  EXPECT_FALSE(device->Pin(host, 8));
}

TEST_F(CudaDeviceTest, ADeviceLostDuringACopySaysSo) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  const auto memory = device->Allocate(64, "test");
  TheMachine().sticky = cudaErrorIllegalAddress;
  char host[64] = {};
  stream->CopyToDevice(memory->data(), host, 64);
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("copying 64 bytes to the device: cudaErrorIllegalAddress"),
                    HasSubstr("restart the program")));
  TheMachine().sticky = cudaSuccess;
  cudaGetLastError();
}

}  // namespace
}  // namespace sluice
