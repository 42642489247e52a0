#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/block_pool.h"
#include "cache/cache_listener.h"
#include "cache/cache_salt.h"
#include "cache/prefix_index.h"

namespace sluice {
namespace {

constexpr int kListenedBlock = 4;

// Records the events: for each group, the anchors and their content.
class TellTale : public CacheListener {
 public:
  struct Held {
    BlockId parent;
    std::vector<int32_t> tokens;
    std::string salt;
    bool operator==(const Held&) const = default;
  };
  using Content = std::map<std::pair<int64_t, BlockId>, Held>;

  void OnStart(int64_t, int, std::span<const AttentionSpan>) override { content.clear(); }
  void OnStored(int64_t group, BlockId anchor, BlockId parent, std::span<const int32_t> tokens,
                std::string_view salt) override {
    EXPECT_TRUE(parent == kNoBlock || content.contains({0, parent}));
    const bool is_new =
        content
            .emplace(std::pair(group, anchor),
                     Held{parent, {tokens.begin(), tokens.end()}, std::string(salt)})
            .second;
    EXPECT_TRUE(is_new);
  }
  void OnRemoved(int64_t group, BlockId anchor) override {
    EXPECT_EQ(content.erase({group, anchor}), 1u);
  }
  void OnCleared() override {
    content.clear();
    ++num_cleared;
  }
  bool wants_everything() const override { return false; }
  void EndBatch() override {}
  CacheEventCounts counts() const override { return {}; }

  Content content;
  int num_cleared = 0;
};

// Sequences with random prefixes come and go; the recorded content must equal what Tell() reports.
TEST(CacheListener, HearsWhatTheIndexHolds) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    BlockPool pool(40);
    TellTale heard;
    const std::vector<AttentionSpan> groups = {{}, {.window = 6}};
    PrefixIndex index(pool, kListenedBlock, groups, nullptr, &heard);
    struct Running {
      BlockTables blocks;
      PrefixCursor cursor;
    };
    std::vector<Running> running;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 3 == 0 && !running.empty()) {
        running.erase(running.begin() + random() % running.size());
      } else {
        std::vector<int32_t> tokens;
        const int64_t num_blocks = 1 + random() % 5;
        for (int64_t i = 0; i < num_blocks * kListenedBlock; ++i)
          tokens.push_back(i % kListenedBlock == 0 ? random() % 3 : 7);
        const std::string salt = random() % 4 == 0 ? "salt" : "";
        Running next{BlockTables(2), index.Start(salt)};
        PrefixLookup lookup;
        index.Match(tokens, num_blocks, salt, lookup, next.cursor, next.blocks);
        const bool fits = pool.Take(num_blocks - next.blocks[0].size(), next.blocks[0]) &&
                          pool.Take(num_blocks - next.blocks[1].size(), next.blocks[1]);
        if (!fits) {
          running.clear();
          continue;
        }
        while (next.cursor.num_blocks < num_blocks) {
          index.Insert(
              std::span(tokens).subspan(
                  static_cast<size_t>(next.cursor.num_blocks * kListenedBlock), kListenedBlock),
              salt, next.cursor, next.blocks);
        }
        running.push_back(std::move(next));
      }
      if (random() % 200 == 0) {
        running.clear();
        EXPECT_TRUE(index.Reset());
        EXPECT_TRUE(heard.content.empty());
      }
      EXPECT_EQ(std::ssize(heard.content), index.num_indexed());
    }
    TellTale told;
    index.Tell(told);
    for (auto& [key, held] : heard.content) {
      // Tell() reports each block's salt; OnStored events carry the salt of the sequence that
      // stored the block.
      EXPECT_EQ(told.content.at(key), held);
    }
    EXPECT_EQ(told.content.size(), heard.content.size());
    EXPECT_GT(heard.num_cleared, 0);
    running.clear();
  }
}

TEST(CacheSalt, HasTheParts) {
  const std::string zero_a("\0a", 2), zero_lora("\0lora 1 1 a b", 13);
  std::set<std::string> salts;
  for (const CacheSaltParts& parts :
       {CacheSaltParts{}, CacheSaltParts{.client = "a"}, CacheSaltParts{.client = zero_a},
        CacheSaltParts{.client = zero_lora},
        CacheSaltParts{.client = "b", .adapter = "a", .serial = 1},
        CacheSaltParts{.client = "", .adapter = "a b", .serial = 12},
        CacheSaltParts{.client = "b", .adapter = "a", .serial = 2}}) {
    const std::string salt = MakeCacheSalt(parts);
    EXPECT_TRUE(salts.insert(salt).second);
    const CacheSaltParts read = ReadCacheSalt(salt);
    EXPECT_EQ(read.client, parts.client);
    EXPECT_EQ(read.adapter, parts.adapter);
    EXPECT_EQ(read.serial, parts.serial);
  }
  EXPECT_EQ(MakeCacheSalt({}), "");
}

}  // namespace
}  // namespace sluice
