#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"
#include "device/hip_library.h"
#include "device/stand_in.h"
#include "fake_hip/open_machine.h"
#include "kernels/cuda/device_kernel_tables.h"

namespace sluice {
namespace {

using fake_hip::TheMachine;
using testing::AllOf;
using testing::HasSubstr;

class HipDeviceTest : public testing::Test {
 protected:
  HipDeviceTest() {
    fake_hip::Machine fresh;
    fresh.num_modules = TheMachine().num_modules;
    TheMachine() = fresh;
  }
  ~HipDeviceTest() override { EXPECT_EQ(TheMachine().num_alive, 0); }
};

TEST_F(HipDeviceTest, ListsWhatTheDriverShows) {
  EXPECT_TRUE(BuiltWithHip());
  const auto devices = ListHipDevices();
  ASSERT_TRUE(devices) << devices.error().message;
  ASSERT_EQ(devices->size(), 2u);
  const DeviceInfo& info = (*devices)[1];
  EXPECT_EQ(info.kind, DeviceKind::kHip);
  EXPECT_EQ(info.ordinal, 1);
  EXPECT_EQ(info.name, "Fake MI355X 1");
  EXPECT_EQ(info.uuid, "GPU-000000000000abc1");
  EXPECT_EQ(info.compute_capability(), 95);
  EXPECT_EQ(info.max_shared_bytes, 160 * 1024);
  EXPECT_EQ(info.num_multiprocessors, 256);
  EXPECT_TRUE(RunsOnCpu(info));
}

TEST_F(HipDeviceTest, SaysWhyThereIsNone) {
  TheMachine().num_devices = 0;
  setenv("HIP_VISIBLE_DEVICES", "7", 1);
  const auto none = OpenDevice(DeviceKind::kHip, 0);
  unsetenv("HIP_VISIBLE_DEVICES");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(none.error().message, AllOf(HasSubstr("shows no GPU"), HasSubstr("/dev/kfd"),
                                          HasSubstr("HIP_VISIBLE_DEVICES is '7'")));
}

TEST_F(HipDeviceTest, SaysWhatCannotBeExaminedOrIsNotThere) {
  TheMachine().next["hipDeviceGetAttribute"] = 1;
  const auto failed = ListHipDevices();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("examining HIP device 0: hipErrorInvalidValue"));
  const auto absent = OpenDevice(DeviceKind::kHip, 2);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("the driver shows 2 (0 to 1)"));
}

TEST_F(HipDeviceTest, CopiesAndFillsInTheOrderOfAStream) {
  auto device = OpenDevice(DeviceKind::kHip, 0);
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_GT(TheMachine().num_modules, 30);
  auto stream = (*device)->CreateStream();
  auto event = (*device)->CreateEvent();
  auto memory = (*device)->Allocate(8, "numbers");
  ASSERT_TRUE(stream && event && memory);
  std::vector<uint8_t> in = {1, 2, 3, 4}, out(8);
  (*stream)->Fill(memory->data(), 9, 8);
  (*stream)->CopyToDevice(memory->data(), in.data(), 4);
  (*stream)->CopyToHost(out.data(), memory->data(), 8);
  (*stream)->Record(**event);
  EXPECT_FALSE((*stream)->IsIdle());
  ASSERT_TRUE((*stream)->SynchronizeUntil(**event));
  EXPECT_EQ(out, (std::vector<uint8_t>{1, 2, 3, 4, 9, 9, 9, 9}));
  (*stream)->CopyOnDevice(memory->data(), in.data(), 4);
  const auto failed = (*stream)->Synchronize();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("copying 4 bytes on the device"));
}

TEST_F(HipDeviceTest, RunsKernelsAndGraphsOfThem) {
  auto device = OpenDevice(DeviceKind::kHip, 1);
  ASSERT_TRUE(device) << device.error().message;
  auto stream = (*device)->CreateStream();
  auto memory = (*device)->Allocate(64, "logits");
  ASSERT_TRUE(stream && memory);
  std::vector<float> numbers = {-100, -1, 0.5f, 100};
  (*stream)->CopyToDevice(memory->data(), numbers.data(), 16);
  ASSERT_TRUE((*stream)->Synchronize());
  device::CapLogitsArgs args = {};
  args.x = memory->As<float>();
  args.count = 4;
  args.cap = 2;
  const auto& kernels = device::KernelsOf(DeviceKind::kHip);
  ASSERT_TRUE((*stream)->BeginCapture());
  kernels.cap_logits((*stream)->handle(), args);
  auto graph = (*stream)->EndCapture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->num_operations(), 1);
  EXPECT_EQ(TheMachine().num_kernels, 0);
  (*stream)->Replay(**graph);
  (*stream)->CopyToHost(numbers.data(), memory->data(), 16);
  ASSERT_TRUE((*stream)->Synchronize());
  EXPECT_EQ(TheMachine().num_replayed, 1);
  EXPECT_NEAR(numbers[0], -2, 1e-5);
  EXPECT_NEAR(numbers[2], 2 * std::tanh(0.25), 1e-5);
  TheMachine().next["hipModuleLaunchKernel"] = 701;
  kernels.cap_logits((*stream)->handle(), args);
  const auto refused = (*stream)->Synchronize();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("launching kernel cap_logits: hipErrorLaunchOutOfResources"));
  ASSERT_TRUE((*device)->CheckAlive());
  kernels.cap_logits((*stream)->handle(), args);
  TheMachine().next["hipModuleLaunchKernel"] = kHipIllegalAddress;
  kernels.cap_logits((*stream)->handle(), args);
  EXPECT_FALSE((*stream)->Synchronize());
  const auto lost = (*device)->CheckAlive();
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("HIP_LAUNCH_BLOCKING=1"));
}

}  // namespace
}  // namespace sluice
