// Graphs of CUDA, and launches of kernels that overlap.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_device_testing.h"
#include "device/overlapping_launch.h"
#include "device/shared_memory_grant.h"
#include "device/uploader.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

}  // namespace
}  // namespace sluice
