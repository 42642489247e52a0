// Code that the tests of library products share: the fake cuBLASLt, and an emulated device whose
// events read the fake's clock.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/emulated_device.h"
#include "device/emulated_queue.h"
#include "kernels/cuda/cublaslt_testing.h"

namespace sluice::device {

// The fake's state. Opens the fake like the real library.
inline FakeCublasLtState& TheFakeCublasLt() {
  void* library = dlopen(SLUICE_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  auto* function = reinterpret_cast<FakeCublasLtFunction>(dlsym(library, kFakeCublasLtName));
  EXPECT_NE(function, nullptr);
  return *function();
}

// Resets the fake's state to that at program start, and returns it.
inline FakeCublasLtState& ResetFakeCublasLt() {
  FakeCublasLtState& state = TheFakeCublasLt();
  EXPECT_EQ(state.num_records, 0) << "an earlier test left records of the library behind";
  state = {};
  return state;
}

class ClockEvent final : public DeviceEvent {
 public:
  Status Synchronize() override { return {}; }
  Result<double> SecondsSince(DeviceEvent& begin) override {
    return seconds - static_cast<ClockEvent&>(begin).seconds;
  }
  double seconds = 0;
};

class ClockStream final : public DeviceStream {
 public:
  ClockStream(std::unique_ptr<DeviceStream> stream, const double* clock)
      : stream_(std::move(stream)), clock_(clock) {}
  void CopyToDevice(void* to, const void* host, int64_t bytes) override {
    stream_->CopyToDevice(to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, int64_t bytes) override {
    stream_->CopyToHost(host, from, bytes);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    stream_->CopyOnDevice(to, from, bytes);
  }
  void Fill(void* to, uint8_t byte, int64_t bytes) override { stream_->Fill(to, byte, bytes); }
  void Record(DeviceEvent& event) override {
    auto* target = static_cast<ClockEvent*>(&event);
    static_cast<EmulatedQueue*>(handle().native)->Enqueue([target, clock = clock_] {
      target->seconds = *clock;
    });
  }
  void WaitFor(DeviceEvent& /*event*/) override { FAIL() << "nothing waits for a clock"; }
  Status Synchronize() override { return stream_->Synchronize(); }
  bool IsIdle() override { return stream_->IsIdle(); }
  StreamHandle handle() override { return stream_->handle(); }

 private:
  std::unique_ptr<DeviceStream> stream_;
  const double* clock_;
};

class ClockDevice final : public Device {
 public:
  ClockDevice(const EmulatedDeviceOptions& options, const double* clock)
      : device_(options), clock_(clock) {}

  const DeviceInfo& info() const override { return device_.info(); }
  Status CheckAlive() const override { return device_.CheckAlive(); }
  Result<int64_t> FreeBytes() override { return device_.FreeBytes(); }
  Result<DeviceBuffer> Allocate(int64_t bytes, const char* what) override {
    return device_.Allocate(bytes, what);
  }
  Result<DeviceBuffer> AllocatePinned(int64_t bytes, const char* what) override {
    return device_.AllocatePinned(bytes, what);
  }
  bool Pin(void* data, int64_t bytes) override { return device_.Pin(data, bytes); }
  void Unpin(void* data) override { device_.Unpin(data); }
  Result<std::unique_ptr<DeviceStream>> CreateStream() override {
    ASSIGN_OR_RETURN(auto stream, device_.CreateStream());
    return std::make_unique<ClockStream>(std::move(stream), clock_);
  }
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return std::make_unique<ClockEvent>();
  }

 protected:
  void Free(void* /*data*/, bool /*is_host*/) override {}  // its buffers belong to device_

 private:
  EmulatedDevice device_;
  const double* clock_;
};

// A device buffer that holds `values`; the bytes after them are poisoned.
template <typename T>
DeviceBuffer BufferOf(Device& device, const std::vector<T>& values) {
  auto buffer = device.Allocate(static_cast<int64_t>(values.size() * sizeof(T)), "test");
  EXPECT_TRUE(buffer.has_value());
  if (!values.empty()) memcpy(buffer->data(), values.data(), values.size() * sizeof(T));
  return *std::move(buffer);
}

}  // namespace sluice::device
