#include "device/emulated_device.h"

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/array_cutter.h"
#include "device/device_pool.h"
#include "device/emulated_queue.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

template <typename T>
T Must(Result<T> result) {
  EXPECT_TRUE(result) << result.error().message;
  return std::move(*result);
}

TEST(EmulatedDevice, RunsNothingBeforeItIsWaitedFor) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(4, "test"));
  auto stream = Must(device.CreateStream());
  int32_t host = 7;
  int32_t back = 0;
  stream->CopyToDevice(memory.data(), &host, 4);
  stream->CopyToHost(&back, memory.data(), 4);
  EXPECT_EQ(back, 0);
  host = 8;  // too early: the copy has not run yet
  ASSERT_TRUE(stream->Synchronize());
  EXPECT_EQ(back, 8);
}

TEST(EmulatedDevice, RunsAllAtOnceWhereItIsTold) {
  EmulatedDevice device({.runs_at_once = true});
  const DeviceBuffer memory = Must(device.Allocate(4, "test"));
  auto stream = Must(device.CreateStream());
  int32_t host = 7;
  int32_t back = 0;
  stream->CopyToDevice(memory.data(), &host, 4);
  host = 8;  // too late: the copy has run
  stream->CopyToHost(&back, memory.data(), 4);
  EXPECT_EQ(back, 7);
  stream->CopyToDevice(&host, &host, 4);
  EXPECT_FALSE(stream->Synchronize());
}

TEST(EmulatedDevice, KeepsTheOrderOfAStream) {
  EmulatedDevice device;
  const DeviceBuffer a = Must(device.Allocate(64, "a"));
  const DeviceBuffer b = Must(device.Allocate(64, "b"));
  auto stream = Must(device.CreateStream());
  std::vector<uint8_t> host(64, 0);
  stream->Fill(a.data(), 1, 64);
  stream->CopyOnDevice(b.data(), a.data(), 64);
  stream->Fill(a.data(), 2, 64);
  stream->CopyToHost(host.data(), b.data(), 64);
  ASSERT_TRUE(stream->Synchronize());
  EXPECT_THAT(host, Each(1));
}

TEST(EmulatedDevice, ReplaysWhatItRecorded) {
  for (const bool at_once : {false, true}) {
    EmulatedDevice device({.runs_at_once = at_once});
    const DeviceBuffer a = Must(device.Allocate(4, "a"));
    const DeviceBuffer b = Must(device.Allocate(4, "b"));
    auto stream = Must(device.CreateStream());
    stream->Fill(b.data(), 9, 4);
    ASSERT_TRUE(stream->BeginCapture());
    stream->CopyOnDevice(b.data(), a.data(), 4);
    stream->CopyOnDevice(a.data(), b.data(), 1);
    auto graph = Must(stream->EndCapture());
    EXPECT_EQ(graph->num_operations(), 2);
    std::array<uint8_t, 4> host = {};
    stream->CopyToHost(host.data(), b.data(), 4);
    ASSERT_TRUE(stream->Synchronize());
    EXPECT_THAT(host, Each(9)) << "recording runs nothing";
    for (const uint8_t number : {3, 4}) {
      stream->Fill(a.data(), number, 4);
      stream->Replay(*graph);
      stream->CopyToHost(host.data(), b.data(), 4);
      ASSERT_TRUE(stream->Synchronize());
      EXPECT_THAT(host, Each(number));
    }
  }
}

TEST(EmulatedDevice, WhatNoGraphHoldsFailsItsRecording) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(4, "test"));
  auto stream = Must(device.CreateStream());
  auto event = Must(device.CreateEvent());
  int32_t host = 7;
  const auto failure = [&](const std::function<void()>& call) {
    EXPECT_TRUE(stream->BeginCapture());
    call();
    const auto graph = stream->EndCapture();
    EXPECT_TRUE(stream->Synchronize());
    return graph ? "" : graph.error().message;
  };
  EXPECT_EQ(failure([&] { stream->Fill(memory.data(), 1, 4); }), "");
  EXPECT_THAT(failure([&] { stream->CopyToDevice(memory.data(), &host, 4); }),
              HasSubstr("a copy to the device was put into a graph"));
  EXPECT_THAT(failure([&] { stream->CopyToHost(&host, memory.data(), 4); }),
              HasSubstr("a copy to the host was put into a graph"));
  EXPECT_THAT(failure([&] { stream->Record(*event); }), HasSubstr("inside a graph"));
  EXPECT_THAT(failure([&] { stream->WaitFor(*event); }), HasSubstr("inside a graph"));
  EXPECT_THAT(failure([&] { EXPECT_FALSE(stream->Synchronize()); }), HasSubstr("inside a graph"));
  EXPECT_THAT(failure([&] {
                device.FailNextCopy();
                stream->Fill(memory.data(), 1, 4);
              }),
              HasSubstr("injected"));
  EXPECT_EQ(failure([&] { stream->Fill(memory.data(), 1, 4); }), "");
}

TEST(EmulatedDevice, WaitsForTheEventsLastRecordAlone) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(1, "test"));
  auto writer = Must(device.CreateStream());
  auto reader = Must(device.CreateStream());
  auto event = Must(device.CreateEvent());
  ASSERT_TRUE(event->Synchronize());  // never recorded
  reader->WaitFor(*event);
  uint8_t seen = 0;
  writer->Fill(memory.data(), 1, 1);
  writer->Record(*event);
  writer->Fill(memory.data(), 2, 1);
  reader->WaitFor(*event);
  writer->Fill(memory.data(), 3, 1);
  writer->Record(*event);  // recorded after WaitFor, so the wait ignores it
  reader->CopyToHost(&seen, memory.data(), 1);
  ASSERT_TRUE(reader->Synchronize());
  EXPECT_EQ(seen, 1);
  ASSERT_TRUE(event->Synchronize());
  reader->CopyToHost(&seen, memory.data(), 1);
  ASSERT_TRUE(reader->Synchronize());
  EXPECT_EQ(seen, 3);
}

TEST(EmulatedDevice, AnEventOutlivesItsStream) {
  EmulatedDevice device;
  auto event = Must(device.CreateEvent());
  {
    auto stream = Must(device.CreateStream());
    const DeviceBuffer memory = Must(device.Allocate(1, "test"));
    stream->Fill(memory.data(), 1, 1);
    stream->Record(*event);
  }
  EXPECT_TRUE(event->Synchronize());  // nothing writes to freed memory
}

TEST(EmulatedDevice, MemoryThatWasNeverWrittenIsNaN) {
  EmulatedDevice device;
  for (const int64_t bytes : {int64_t{4}, kMiB + 3, 40 * kMiB}) {
    const DeviceBuffer memory = Must(device.Allocate(bytes, "test"));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u);
    EXPECT_TRUE(std::isnan(memory.As<float>()[0]));
    EXPECT_EQ(memory.As<uint8_t>()[bytes - 1], 0xFF);
    memory.As<uint8_t>()[bytes - 1] = 0;
  }
  // Writes to one mapping are not visible in the next.
  const DeviceBuffer memory = Must(device.Allocate(40 * kMiB, "test"));
  EXPECT_EQ(memory.As<uint8_t>()[40 * kMiB - 1], 0xFF);
  EXPECT_TRUE(std::isnan(Must(device.AllocatePinned(64, "test")).As<float>()[0]));
}

TEST(EmulatedDevice, CountsItsMemoryAndRefusesMore) {
  EmulatedDevice device({.total_bytes = 10 * kMiB});
  DeviceBuffer first = Must(device.Allocate(6 * kMiB, "weights"));
  EXPECT_EQ(Must(device.FreeBytes()), 4 * kMiB);
  const auto refused = device.Allocate(5 * kMiB, "the KV cache");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("the KV cache: 5.00 MiB of device memory are needed, and of the 10.00 MiB "
                        "of emulated only 4.00 MiB are free"));
  EXPECT_TRUE(device.AllocatePinned(64 * kMiB, "pinned"));  // does not use device memory
  first = DeviceBuffer();
  EXPECT_EQ(Must(device.FreeBytes()), 10 * kMiB);
}

TEST(EmulatedDevice, CopiesOnlyBetweenTheRightMemories) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(100, "test"));
  const DeviceBuffer pinned = Must(device.AllocatePinned(100, "test"));
  auto stream = Must(device.CreateStream());
  std::array<char, 200> host{};
  const auto fails = [&] {
    const Status status = stream->Synchronize();
    return !status && status.error().code == ErrorCode::kInternal;
  };
  stream->CopyToDevice(memory.data(), pinned.data(), 100);
  stream->CopyToHost(host.data(), memory.data(), 100);
  EXPECT_FALSE(fails());
  stream->CopyToDevice(memory.data(), host.data(), 101);
  EXPECT_TRUE(fails());
  EXPECT_FALSE(fails());  // reported once
  stream->CopyToDevice(host.data(), host.data(), 1);
  EXPECT_TRUE(fails());
  stream->CopyToDevice(memory.data(), memory.data(), 1);
  EXPECT_TRUE(fails());
  stream->CopyToHost(memory.data(), memory.data(), 1);
  EXPECT_TRUE(fails());
  stream->CopyOnDevice(memory.data(), pinned.data(), 1);
  EXPECT_TRUE(fails());
  stream->Fill(host.data(), 0, 1);
  EXPECT_TRUE(fails());
  {
    const DeviceBuffer gone = Must(device.Allocate(100, "gone"));
    stream->Fill(gone.data(), 0, 100);
  }
  EXPECT_TRUE(fails());
}

TEST(EmulatedDevice, FindsPageLockedMemoryThatGoesTooEarly) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(64, "test"));
  auto stream = Must(device.CreateStream());
  std::vector<char> host(64);
  ASSERT_TRUE(device.Pin(host.data(), 64));
  EXPECT_FALSE(device.Pin(host.data(), 64)) << "it is";
  stream->CopyToDevice(memory.data(), host.data(), 64);
  ASSERT_TRUE(stream->Synchronize());
  stream->CopyToHost(host.data() + 10, memory.data(), 20);
  device.Unpin(host.data());
  EXPECT_THAT(stream->Synchronize().error().message, HasSubstr("page-locked memory went before"));
  stream->CopyToHost(host.data(), memory.data(), 64);  // allowed: unpinned memory is ordinary host
                                                       // memory
  EXPECT_TRUE(stream->Synchronize());
  {
    const DeviceBuffer pinned = Must(device.AllocatePinned(64, "test"));
    stream->CopyToDevice(memory.data(), pinned.data(), 64);
  }
  EXPECT_THAT(stream->Synchronize().error().message, HasSubstr("page-locked memory went before"));
}

TEST(EmulatedDevice, ReportsTheCopyThatFailedOnce) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(4, "test"));
  auto stream = Must(device.CreateStream());
  int32_t host = 7;
  device.FailNextCopy();
  stream->CopyToDevice(memory.data(), &host, 4);
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_THAT(status.error().message, HasSubstr("a copy to the device"));
  stream->CopyToDevice(memory.data(), &host, 4);
  EXPECT_TRUE(stream->Synchronize());
}

TEST(EmulatedDevice, ReportsTheKernelThatCouldNotBeLaunched) {
  EmulatedDevice device;
  auto stream = Must(device.CreateStream());
  const StreamHandle handle = stream->handle();
  device.FailNextLaunch();
  const int fault = static_cast<EmulatedQueue*>(handle.native)->TakeLaunchFault();
  ASSERT_NE(fault, 0);
  *handle.failure = {"SiluMul", fault};  // reports a failure like a launcher
  const Status status = stream->Synchronize();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("SiluMul"));
  EXPECT_TRUE(stream->Synchronize());
  EXPECT_EQ(static_cast<EmulatedQueue*>(handle.native)->TakeLaunchFault(), 0);
}

TEST(EmulatedDevice, ALostDeviceFailsForEver) {
  EmulatedDevice device;
  const DeviceBuffer memory = Must(device.Allocate(4, "test"));
  auto stream = Must(device.CreateStream());
  auto event = Must(device.CreateEvent());
  uint8_t host = 5;
  stream->CopyToHost(&host, memory.data(), 1);
  stream->Record(*event);
  EXPECT_TRUE(device.CheckAlive());
  device.Lose();
  EXPECT_FALSE(device.CheckAlive());
  for (int i = 0; i < 2; ++i) {
    const Status status = stream->Synchronize();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("restart the program"));
  }
  EXPECT_FALSE(event->Synchronize());
  EXPECT_FALSE(device.Allocate(1, "test"));
  EXPECT_FALSE(device.AllocatePinned(1, "test"));
  EXPECT_FALSE(device.FreeBytes());
  EXPECT_FALSE(device.CreateStream());
  EXPECT_FALSE(device.CreateEvent());
  EXPECT_EQ(host, 5);
}

TEST(DevicePool, TakesExactlyWhatPaddedCounts) {
  EmulatedDevice device({.total_bytes = kMiB});
  const std::array<int64_t, 6> sizes = {1, 255, 256, 257, 0, 1000};
  int64_t planned = 0;
  for (const int64_t size : sizes) planned += DevicePool::Padded(size);
  EXPECT_EQ(planned, 256 + 256 + 256 + 512 + 0 + 1024);
  DevicePool pool = Must(DevicePool::Allocate(device, planned, "the model"));
  EXPECT_EQ(Must(device.FreeBytes()), kMiB - planned);
  auto* least = static_cast<char*>(nullptr);
  for (const int64_t size : sizes) {
    void* const piece = Must(pool.Take(size, "piece"));
    if (size == 0) {
      EXPECT_EQ(piece, nullptr);
      continue;
    }
    // On emulated devices there are gaps between pieces.
    if (least != nullptr) {
      EXPECT_GT(piece, least);
    }
    least = static_cast<char*>(piece) + DevicePool::Padded(size);
    EXPECT_TRUE(device.Holds(piece, size));
  }
  EXPECT_EQ(pool.used_bytes(), pool.size_bytes());
  const auto refused = pool.Take(1, "the workspace");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("the workspace: 1 bytes are needed, and 0 bytes are left of the"));
}

// Writes one number beyond a piece of any size. An address sanitizer reports it first.
TEST(DevicePoolDeathTest, NamesThePieceThatIsOverrun) {
  const auto write = [](int64_t place) {
    EmulatedDevice device({.total_bytes = kMiB});
    DevicePool pool = Must(DevicePool::Allocate(device, 4096, "the model"));
    auto* const weights = static_cast<char*>(Must(pool.Take(1024, "the weights")));
    const auto* const cache = static_cast<char*>(Must(pool.Take(100, "the KV cache")));
    EXPECT_GE(cache - weights, 1280);
    weights[place] = 1;
  };
  write(1023);
  EXPECT_DEATH(write(1024), "behind the weights was written|use-after-poison");
  EXPECT_DEATH(write(1380), "behind the KV cache was written|use-after-poison");
}

// Arrays of one piece; the last two share memory on a GPU.
TEST(DevicePoolDeathTest, NamesTheArrayThatIsOverrun) {
  const auto write = [](size_t array, int64_t place) {
    EmulatedDevice device({.total_bytes = kMiB, .keeps_arrays_apart = true});
    DevicePool pool = Must(DevicePool::Allocate(device, 4096, "the model"));
    ASSERT_TRUE(pool.keeps_arrays_apart());
    ArrayCutter cutter(/*keeps_apart=*/true);
    std::array<int64_t, 3> arrays = {cutter.Take(100), cutter.Take(512)};
    cutter.ShareFrom(256);
    arrays[2] = cutter.Take(300);
    EXPECT_EQ(cutter.total_bytes(), 768);
    const int64_t free = Must(device.FreeBytes());
    auto* const piece =
        static_cast<char*>(Must(pool.Take(cutter.total_bytes(), "the workspace", cutter.gaps())));
    EXPECT_EQ(pool.used_bytes(), 768) << "gaps count nowhere";
    EXPECT_EQ(Must(device.FreeBytes()), free);
    EXPECT_TRUE(device.Holds(piece + arrays[2], 300));
    piece[arrays[array] + place] = 1;
  };
  write(0, 99);
  write(1, 511);
  write(2, 299);
  EXPECT_DEATH(write(0, 100), "behind array 0 of the workspace was written|use-after-poison");
  EXPECT_DEATH(write(1, 512), "behind array 1 of the workspace was written|use-after-poison");
  EXPECT_DEATH(write(2, 300), "behind array 2 of the workspace was written|use-after-poison");
}

TEST(ArrayCutter, SharesMemoryUnlessArraysAreKeptApart) {
  ArrayCutter cutter;
  EXPECT_EQ(cutter.Take(100), 0);
  const int64_t shared = cutter.planned_end();
  EXPECT_EQ(cutter.Take(512), 256);
  EXPECT_EQ(cutter.Take(1), 768);
  cutter.ShareFrom(shared);
  EXPECT_EQ(cutter.Take(300), 256);
  EXPECT_EQ(cutter.total_bytes(), 1024);
  EXPECT_TRUE(cutter.gaps().empty());
  EmulatedDevice device({.total_bytes = kMiB});
  EXPECT_FALSE(Must(DevicePool::Allocate(device, 4096, "the model")).keeps_arrays_apart());
}

TEST(DevicePool, NamesWhatDidNotFit) {
  EmulatedDevice device({.total_bytes = kMiB});
  const auto refused = DevicePool::Allocate(device, 2 * kMiB, "weights and KV cache");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("weights and KV cache: 2.00 MiB"));
  // The pool includes the padding of the last piece, whatever size was requested.
  DevicePool pool = Must(DevicePool::Allocate(device, 1000, "odd"));
  EXPECT_TRUE(pool.Take(1000, "all"));
}

// One work item waits for another thread. IsIdle runs the work that can run; Synchronize waits
// for all of it.
TEST(EmulatedDevice, WorkThatCannotRunYetKeepsWhatFollowsWaiting) {
  EmulatedDevice device;
  const auto stream = Must(device.CreateStream());
  const DeviceBuffer memory = Must(device.Allocate(4, "numbers"));
  std::atomic<bool> may_go{false};
  auto* const queue = static_cast<EmulatedQueue*>(stream->handle().native);
  EXPECT_TRUE(stream->IsIdle());
  int looks = 0, number = 7, back = 0;
  stream->CopyToDevice(memory.data(), &number, 4);
  queue->EnqueueWaiting([&] { return ++looks > 0 && may_go.load(); });
  stream->CopyToHost(&back, memory.data(), 4);
  EXPECT_FALSE(stream->IsIdle());
  EXPECT_FALSE(stream->IsIdle());
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(back, 0);
  std::thread other([&] { may_go = true; });
  EXPECT_TRUE(stream->Synchronize());
  other.join();
  EXPECT_EQ(back, 7);
  EXPECT_TRUE(stream->IsIdle());
}

TEST(OpenDevice, OpensTheEmulatedOne) {
  const auto device = Must(OpenDevice(DeviceKind::kEmulated, 0));
  EXPECT_EQ(device->info().kind, DeviceKind::kEmulated);
  EXPECT_EQ(device->info().name, "emulated");
  EXPECT_EQ(device->info().compute_capability(), 90);
  EXPECT_EQ(Must(OpenDevice(DeviceKind::kEmulated, 3))->info().ordinal, 3);
  const auto refused = OpenDevice(DeviceKind::kEmulated, 256);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
}

TEST(OpenDevice, RefusesCudaWhereThereIsNone) {
  const auto devices = ListCudaDevices();
  if (devices) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(devices.error().code, ErrorCode::kUnsupported);
  if (!BuiltWithCuda()) {
    EXPECT_THAT(devices.error().message,
                HasSubstr("without CUDA; build it with `make build-cuda`"));
  }
  const auto device = OpenDevice(DeviceKind::kCuda, 0);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(device.error().message, devices.error().message);
}

}  // namespace
}  // namespace sluice
