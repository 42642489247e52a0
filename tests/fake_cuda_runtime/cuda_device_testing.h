// Test fixtures on a machine with the fake CUDA runtime.
#pragma once

#include <cstdlib>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "device/cuda_device.h"
#include "device/device.h"
#include "fake_cuda_runtime.h"

namespace sluice {

using fake_cuda::TheMachine;

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

}  // namespace sluice
