// Streams, events and uploads of CUDA.
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_device_testing.h"
#include "device/uploader.h"

namespace sluice {
namespace {

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

}  // namespace
}  // namespace sluice
