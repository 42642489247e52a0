#include "device/uploader.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/emulated_device.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Returns the source's bytes; no two chunks are equal.
std::vector<uint8_t> Source(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

// Parameter: whether the device runs work immediately or as late as possible.
class UploaderTest : public ::testing::TestWithParam<bool> {
 protected:
  Uploader Create(int64_t chunk_bytes) {
    auto uploader = Uploader::Create(device_, chunk_bytes);
    EXPECT_TRUE(uploader);
    return *std::move(uploader);
  }
  DeviceBuffer Allocate(int64_t bytes) {
    auto memory = device_.Allocate(bytes, "weights");
    EXPECT_TRUE(memory);
    return *std::move(memory);
  }
  static std::vector<uint8_t> Bytes(const DeviceBuffer& memory) {
    return {memory.As<uint8_t>(), memory.As<uint8_t>() + memory.size_bytes()};
  }

  EmulatedDevice device_{{.runs_at_once = GetParam()}};
  ThreadPool pool_{3};
};

INSTANTIATE_TEST_SUITE_P(, UploaderTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Early" : "Late"; });

// The emulated device reads a chunk only when a caller waits for it. A chunk that is refilled too
// early would therefore arrive with its later contents.
TEST_P(UploaderTest, NeverRefillsWhatIsOnItsWay) {
  for (const int64_t chunk : {1, 256, 1000, 65536}) {
    for (const size_t size : {0, 1, 255, 256, 257, 512, 1024, 10'001, 300'007}) {
      Uploader uploader = Create(chunk);
      const std::vector<uint8_t> source = Source(size);
      const DeviceBuffer memory = Allocate(static_cast<int64_t>(size));
      ASSERT_TRUE(uploader.Copy(pool_, memory.data(), source.data(), memory.size_bytes()));
      ASSERT_TRUE(uploader.Finish());
      EXPECT_EQ(Bytes(memory), source) << size << " bytes in chunks of " << chunk;
      EXPECT_EQ(uploader.bytes(), memory.size_bytes());
    }
  }
}

TEST_P(UploaderTest, TheSourceMayGoAtOnce) {
  Uploader uploader = Create(512);
  const std::vector<uint8_t> expected = Source(3000);
  std::vector<uint8_t> source = expected;
  const DeviceBuffer memory = Allocate(3000);
  ASSERT_TRUE(uploader.Copy(pool_, memory.data(), source.data(), 3000));
  source.assign(source.size(), 0);
  ASSERT_TRUE(uploader.Finish());
  EXPECT_EQ(Bytes(memory), expected);
}

TEST_P(UploaderTest, PiecesOfAnySizeFollowEachOther) {
  Uploader uploader = Create(1024);
  const std::vector<uint8_t> source = Source(40'000);
  const DeviceBuffer memory = Allocate(40'000);
  int64_t at = 0;
  for (int64_t size = 1; at + size <= memory.size_bytes(); size += 13) {
    ASSERT_TRUE(uploader.Copy(pool_, memory.As<char>() + at, source.data() + at, size));
    at += size;
    if (size % 5 == 0) {
      ASSERT_TRUE(uploader.Finish());  // also between pieces
    }
  }
  ASSERT_TRUE(
      uploader.Copy(pool_, memory.As<char>() + at, source.data() + at, memory.size_bytes() - at));
  ASSERT_TRUE(uploader.Finish());
  EXPECT_EQ(Bytes(memory), source);
}

TEST_P(UploaderTest, NeverCutsAnElement) {
  Uploader uploader = Create(768);
  const DeviceBuffer memory = Allocate(10'000);
  std::vector<uint8_t> expected(10'000);
  std::iota(reinterpret_cast<uint32_t*>(expected.data()),
            reinterpret_cast<uint32_t*>(expected.data() + 10'000), 0u);
  ASSERT_TRUE(uploader.Copy(pool_, memory.data(), expected.data(), 12));  // the next piece shares a
                                                                          // chunk
  int64_t next = 0;
  ASSERT_TRUE(uploader.Fill(memory.data(), 10'000,
                            [&](std::byte* chunk, int64_t offset, int64_t size) -> Status {
                              EXPECT_EQ(reinterpret_cast<uintptr_t>(chunk) % 256, 0u);
                              EXPECT_EQ(offset % 256, 0);
                              EXPECT_EQ(offset, next);
                              next = offset + size;
                              auto* numbers = reinterpret_cast<uint32_t*>(chunk);
                              for (int64_t i = 0; i < size / 4; ++i)
                                numbers[i] = static_cast<uint32_t>(offset / 4 + i);
                              return {};
                            }));
  EXPECT_EQ(next, 10'000);
  ASSERT_TRUE(uploader.Finish());
  EXPECT_EQ(Bytes(memory), expected);
}

TEST_P(UploaderTest, MeasuresItsSpeed) {
  Uploader uploader = Create(4096);
  EXPECT_EQ(uploader.bytes_per_second(), 0);
  const std::vector<uint8_t> source = Source(100'000);
  const DeviceBuffer memory = Allocate(100'000);
  ASSERT_TRUE(uploader.Copy(pool_, memory.data(), source.data(), 100'000));
  ASSERT_TRUE(uploader.Finish());
  const double speed = uploader.bytes_per_second();
  EXPECT_GT(speed, 1e4);
  EXPECT_EQ(uploader.bytes_per_second(), speed);  // Finish stopped the clock
}

TEST_P(UploaderTest, TellsWhatWentWrong) {
  Uploader uploader = Create(256);
  const std::vector<uint8_t> source = Source(2000);
  const DeviceBuffer memory = Allocate(2000);

  device_.FailNextCopy();
  ASSERT_TRUE(uploader.Copy(pool_, memory.data(), source.data(), 100));
  const Status failed = uploader.Finish();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("a copy to the device"));

  const Status stopped = uploader.Fill(memory.data(), 2000, [](std::byte*, int64_t, int64_t) {
    return Status(Fail(ErrorCode::kInvalidData, "the file ends here"));
  });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kInvalidData);

  // After errors, later pieces still arrive.
  ASSERT_TRUE(uploader.Copy(pool_, memory.data(), source.data(), 2000));
  ASSERT_TRUE(uploader.Finish());
  EXPECT_EQ(Bytes(memory), source);

  device_.Lose();
  EXPECT_FALSE(uploader.Copy(pool_, memory.data(), source.data(), 2000));  // fails immediately
  EXPECT_FALSE(uploader.Finish());
}

TEST_P(UploaderTest, IsRefusedByALostDevice) {
  device_.Lose();
  EXPECT_FALSE(Uploader::Create(device_));
}

}  // namespace
}  // namespace sluice
