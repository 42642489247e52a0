#include "cache/fair_lru.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace sluice {
namespace {

const auto kAnyMayGo = [](int32_t) { return true; };

TEST(FairLru, OfOneOwnerTheOldestGoes) {
  FairLru lru(4);
  for (const int32_t id : {2, 0, 3}) lru.PushBack(id, 7);
  EXPECT_EQ(lru.Victim(kAnyMayGo), 2);
  lru.Remove(2);
  lru.PushBack(2, 7);
  EXPECT_EQ(lru.Victim(kAnyMayGo), 0);
  EXPECT_EQ(lru.size(), 3);
}

TEST(FairLru, AnOwnerBelowItsShareIsSpared) {
  FairLru lru(8);
  for (const int32_t id : {0, 1}) lru.PushBack(id, 1);
  for (const int32_t id : {2, 3, 4, 5}) lru.PushBack(id, 2);
  EXPECT_EQ(lru.Victim(kAnyMayGo), 2);
  EXPECT_EQ(lru.Victim([](int32_t id) { return id > 3; }), 4);
  // If no id of the largest owner may be evicted, the oldest id is.
  EXPECT_EQ(lru.Victim([](int32_t) { return false; }), 0);
  lru.Remove(2);
  lru.Remove(3);
  EXPECT_EQ(lru.Victim(kAnyMayGo), 0);
}

// Compares Victim with a direct implementation of the rule, with more owners than FairLru
// remembers.
TEST(FairLru, RandomUseKeepsToTheRule) {
  constexpr int32_t kCount = 64;
  std::mt19937 random(3);
  FairLru lru(kCount);
  std::vector<std::pair<int32_t, uint64_t>> expected;  // the oldest first
  for (int step = 0; step < 20'000; ++step) {
    const auto id = static_cast<int32_t>(random() % kCount);
    const auto found = std::ranges::find(expected, id, &std::pair<int32_t, uint64_t>::first);
    if (found != expected.end()) {
      lru.Remove(id);
      expected.erase(found);
    }
    if (random() % 4 != 0) {
      const uint64_t owner = random() % 3 == 0 ? random() : random() % 5;
      lru.PushBack(id, owner);
      expected.emplace_back(id, owner);
    }
    ASSERT_EQ(lru.Length(kAnyMayGo), static_cast<int64_t>(expected.size()));
    if (expected.empty()) continue;
    std::map<uint64_t, size_t> counts;
    for (const auto& [other, owner] : expected) ++counts[owner];
    const int32_t victim = lru.Victim(kAnyMayGo);
    const auto chosen = std::ranges::find(expected, victim, &std::pair<int32_t, uint64_t>::first);
    ASSERT_NE(chosen, expected.end());
    // The id's owner holds at least an equal share, and has no older id.
    EXPECT_GE(counts[chosen->second] * counts.size(), expected.size());
    for (auto older = expected.begin(); older != chosen; ++older)
      EXPECT_NE(older->second, chosen->second);
    if (counts[expected.front().second] * counts.size() >= expected.size()) {
      EXPECT_EQ(victim, expected.front().first);
    }
  }
}

}  // namespace
}  // namespace sluice
