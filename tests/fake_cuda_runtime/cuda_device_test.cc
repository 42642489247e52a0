#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"
#include "device/library_failure.h"
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
    TheMachine() = {};
    // A GPU that the kernels are compiled for, whichever those are.
    const int first = atoi(SLUICE_CUDA_ARCHITECTURES);
    TheMachine().compute_major = first / 10;
    TheMachine().compute_minor = first % 10;
    cudaGetLastError();
  }
  // Nothing is left: no object, no error for a launcher to find, no call for another device.
  ~CudaDeviceTest() override {
    EXPECT_EQ(TheMachine().num_wrong_device, 0);
    EXPECT_EQ(TheMachine().num_alive, 0);
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
              AllOf(HasSubstr("out of LD_LIBRARY_PATH"), Not(HasSubstr("driver for CUDA"))));
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
  // Others hold all of the memory.
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

TEST_F(CudaDeviceTest, AFailureOfALibraryIsNotTheDevicesEnd) {
  const auto device = Open(0);
  const auto stream = *device->CreateStream();
  *stream->handle().failure = {"cublasLtMatmul", kFailedInLibrary};
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "cublasLtMatmul failed; the log tells its library's reason");
  EXPECT_TRUE(device->CheckAlive());
  EXPECT_TRUE(stream->Synchronize());
  // Unless the device says so.
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
  stream->Record(*begin);
  stream->Record(*end);
  EXPECT_NEAR(*end->SecondsSince(*begin), 2.5e-3, 1e-9);
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
  // Even if the runtime forgot it.
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

TEST_F(CudaDeviceTest, TakesUploads) {
  const auto device = Open(1);
  const auto memory = device->Allocate(100'000, "weights");
  ThreadPool pool(2);
  std::vector<char> source(100'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 7 + i / 256);
  auto uploader = Uploader::Create(*device, 4096);
  ASSERT_TRUE(uploader);
  ASSERT_TRUE(uploader->Copy(pool, memory->data(), source.data(), 100'000));
  ASSERT_TRUE(uploader->Finish());
  EXPECT_EQ(memcmp(memory->data(), source.data(), 100'000), 0);
}

}  // namespace
}  // namespace sluice
