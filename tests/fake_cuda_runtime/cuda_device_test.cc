// How the device of CUDA handles what the runtime says of GPUs, memory and failures.
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_device_testing.h"
#include "device/eager_kernels.h"
#include "device/integrated_gpu.h"
#include "device/library_failure.h"
#include "device/shared_memory_grant.h"
#include "device/tensor_map.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
  // Other programs use all of the memory.
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
  std::thread([&] {  // a new thread starts with device 0
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
    stream->handle();  // a launch would follow this call
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

// The error of a launch states only that an earlier kernel failed, and names the earlier kernels.
TEST_F(CudaDeviceTest, ALaunchIsNotBlamedForKernelsBeforeIt) {
  const auto names = [](LaunchFailure& failure, unsigned count) {
    constexpr const char* kNames[] = {"zero", "one", "two",   "three", "four",
                                      "five", "six", "seven", "eight", "nine"};
    for (unsigned i = 0; i < count; ++i) failure.Record(kNames[i], cudaSuccess);
  };
  for (const bool waits : {false, true}) {
    fake_cuda::ResetMachine();
    const auto device = Open(0);
    const auto stream = *device->CreateStream();
    LaunchFailure& failure = *stream->handle().failure;
    names(failure, 10);
    failure.Record("rms_norm", cudaErrorIllegalAddress);
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
  // If the device reports an error as well, the launch itself failed.
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

TEST_F(CudaDeviceTest, ASmallerGrantOfSharedMemoryTakesBackNoLargerOne) {
  // Kernels are identified by address. Grants of shared memory outlive a test, so each run has
  // separate kernels.
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
