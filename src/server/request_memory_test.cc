#include "server/request_memory.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(RequestMemoryTest, LeasesFitOrAreRefused) {
  const auto memory = std::make_shared<RequestMemory>(8 * kMiB);
  MemoryLease first(memory);
  EXPECT_TRUE(first.TryResize(5 * kMiB));
  {
    MemoryLease second(memory);
    EXPECT_FALSE(second.TryResize(3 * kMiB));
    EXPECT_EQ(second.bytes(), 0u);
    EXPECT_TRUE(second.TryResize(2 * kMiB));
    EXPECT_EQ(memory->used(), 7 * kMiB);
    EXPECT_EQ(memory->num_refused(), 1u);
    // The last eighth is reserved for small leases.
    MemoryLease large(memory), small(memory);
    EXPECT_FALSE(large.TryResize(RequestMemory::kSmall + 1));
    EXPECT_TRUE(small.TryResize(RequestMemory::kSmall));
  }
  EXPECT_EQ(memory->used(), 5 * kMiB);
  first.Shrink(kMiB);
  EXPECT_EQ(memory->used(), kMiB);
  EXPECT_EQ(memory->TakeReturned(), 6 * kMiB);
  EXPECT_EQ(memory->TakeReturned(), 0u);
  MemoryLease taken(std::move(first));
  EXPECT_EQ(first.bytes(), 0u);
  EXPECT_EQ(taken.bytes(), kMiB);
  EXPECT_EQ(memory->used(), kMiB);
}

TEST(RequestMemoryTest, TinyLeasesAreAlwaysGranted) {
  const auto memory = std::make_shared<RequestMemory>(100'000);
  std::vector<MemoryLease> leases;
  for (int i = 0; i < 100; ++i) {
    leases.emplace_back(memory);
    EXPECT_TRUE(leases.back().TryResize(RequestMemory::kTiny));
  }
  MemoryLease small(memory);
  EXPECT_FALSE(small.TryResize(RequestMemory::kTiny + 1));
}

TEST(RequestMemoryTest, OnlyThePlanMakesARequestTooLarge) {
  RequestMemory memory(8 * kMiB);
  EXPECT_FALSE(memory.IsTooLarge(9 * kMiB));
  memory.SetPlanned(16 * kMiB);
  EXPECT_EQ(memory.capacity(), 16 * kMiB);
  EXPECT_EQ(memory.largest(), 14 * kMiB);
  EXPECT_FALSE(memory.IsTooLarge(14 * kMiB));
  EXPECT_TRUE(memory.IsTooLarge(14 * kMiB + 1));
}

TEST(RequestMemoryTest, ThreadsNeverTakeMoreThanThereIs) {
  const auto memory = std::make_shared<RequestMemory>(8 * kMiB);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        MemoryLease lease(memory);
        if (!lease.TryResize(3 * kMiB)) continue;
        EXPECT_LE(memory->used(), 7 * kMiB);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->used(), 0u);
}

}  // namespace
}  // namespace sluice
