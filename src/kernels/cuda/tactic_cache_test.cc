#include "kernels/cuda/tactic_cache.h"

#include <unistd.h>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/file.h"

namespace sluice::device {
namespace {

namespace fs = std::filesystem;

const TacticOwner kOwner{
    .device = "NVIDIA H200", .compute_capability = 90, .library_version = 130002};

class TacticCacheTest : public ::testing::Test {
 protected:
  TacticCacheTest()
      : folder_(fs::temp_directory_path() / fmt::format("sluice-tactics-{}", getpid())),
        path_(folder_ / "deep" / "tactics.json") {
    fs::remove_all(folder_);
  }
  ~TacticCacheTest() override { fs::remove_all(folder_); }

  void Write(const std::string& text) const {
    fs::create_directories(path_.parent_path());
    std::ofstream(path_, std::ios::binary) << text;
  }
  std::string Saved() const { return ReadFile(path_).value_or(""); }

  static Tactic Example() {
    Tactic tactic{.workspace_bytes = 65536, .seconds = 1.25e-5};
    for (size_t i = 0; i < 8; ++i) tactic.algorithm[i] = 0xFFFFFFFFFFFFFFFF - i;
    return tactic;
  }
  // Returns the file that a program with a single tactic writes.
  std::string Text() const {
    TacticCache cache(path_, kOwner);
    cache.Put("bf16 to f32, n 64", Example());
    EXPECT_TRUE(cache.Save().has_value());
    return Saved();
  }

  fs::path folder_, path_;
};

TEST_F(TacticCacheTest, KeepsWhatWasPut) {
  Text();
  TacticCache cache(path_, kOwner);
  ASSERT_EQ(cache.size(), 1u);
  const Tactic* tactic = cache.Find("bf16 to f32, n 64");
  ASSERT_NE(tactic, nullptr);
  EXPECT_EQ(tactic->algorithm, Example().algorithm);
  EXPECT_EQ(tactic->workspace_bytes, 65536);
  EXPECT_EQ(tactic->seconds, 1.25e-5);
  EXPECT_EQ(cache.Find("bf16 to f32, n 65"), nullptr);
  // No partial file is left, and nothing is written if nothing changed.
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), {}), 1);
  fs::remove(path_);
  ASSERT_TRUE(cache.Save().has_value());
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(TacticCacheTest, IgnoresAndReplacesAnotherOwnersFile) {
  const std::string text = Text();
  TacticOwner owners[] = {kOwner, kOwner, kOwner};
  owners[0].device = "NVIDIA H100";
  owners[1].compute_capability = 100;
  owners[2].library_version = 130100;
  for (const TacticOwner& owner : owners) {
    Write(text);
    TacticCache cache(path_, owner);
    EXPECT_EQ(cache.size(), 0u);
    cache.Put("other", Example());
    ASSERT_TRUE(cache.Save().has_value());
    EXPECT_EQ(TacticCache(path_, owner).size(), 1u);
    EXPECT_EQ(TacticCache(path_, kOwner).size(), 0u);
  }
}

TEST_F(TacticCacheTest, KeepsWays) {
  TacticCache cache(path_, kOwner);
  cache.Put("a product", {.way = "own kernels", .seconds = 2e-6});
  ASSERT_TRUE(cache.Save().has_value());
  const TacticCache again(path_, kOwner);
  ASSERT_NE(again.Find("a product"), nullptr);
  EXPECT_EQ(again.Find("a product")->way, "own kernels");
  EXPECT_EQ(again.Find("a product")->seconds, 2e-6);
  const std::string text = Saved();
  const std::string way = "\"own kernels\"";
  for (const std::string& other : {std::string("\"\""), std::string("7"), std::string("null"),
                                   std::string("[]"), "\"" + std::string(41, 'w') + "\""}) {
    std::string damaged = text;
    damaged.replace(damaged.find(way), way.size(), other);
    Write(damaged);
    EXPECT_EQ(TacticCache(path_, kOwner).size(), 0u) << other;
  }
}

TEST_F(TacticCacheTest, IgnoresDamagedFiles) {
  const std::string text = Text();
  // The file may be truncated at any place.
  for (size_t size = 0; size + 2 < text.size(); size += 7) {
    Write(text.substr(0, size));
    EXPECT_EQ(TacticCache(path_, kOwner).size(), 0u) << size;
  }
  const std::pair<std::string, std::string> edits[] = {
      {"\"format\":2", "\"format\":1"},
      {"\"program\":\"", "\"program\":\"x"},
      {"\"tactics\":{", "\"tactics\":[],\"x\":{"},
      {"ffffffffffffffff", "fffffffffffffffff"},  // more than 64 bits
      {"ffffffffffffffff", "xyz"},
      {"\"ffffffffffffffff\",", ""},  // seven words
      {"65536", "-1"},
      {"65536", "2000000000000"},
      {"65536", "\"65536\""},
      {"1.25e-05", "-1.0"},
      {"1.25e-05", "null"},
      {"bf16 to f32, n 64", std::string(201, 'n')},
      {text, "[1]"},
      {text, std::string(100, '[')},
      {text, std::string("\0\xFF", 2)},
  };
  for (const auto& [from, to] : edits) {
    std::string damaged = text;
    ASSERT_NE(damaged.find(from), std::string::npos) << from;
    damaged.replace(damaged.find(from), from.size(), to);
    Write(damaged);
    TacticCache cache(path_, kOwner);
    EXPECT_EQ(cache.size(), 0u) << from << " -> " << to;
  }
  Write(text);
  EXPECT_EQ(TacticCache(path_, kOwner).size(), 1u);
}

TEST_F(TacticCacheTest, IsBounded) {
  TacticCache cache(path_, kOwner);
  for (size_t i = 0; i < TacticCache::kMaxTactics + 10; ++i)
    cache.Put(fmt::format("{}", i), Example());
  EXPECT_EQ(cache.size(), TacticCache::kMaxTactics);
  ASSERT_TRUE(cache.Save().has_value());
  EXPECT_EQ(TacticCache(path_, kOwner).size(), TacticCache::kMaxTactics);
  // One tactic more than a program writes.
  std::string text = Saved();
  const std::string marker = "\"tactics\":{";
  text.insert(text.find(marker) + marker.size(),
              "\"more\":{\"algorithm\":[\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\"],"
              "\"workspace_bytes\":0,\"seconds\":0.0},");
  Write(text);
  EXPECT_EQ(TacticCache(path_, kOwner).size(), 0u);
}

// Processes in different containers that share the folder may have the same id.
TEST_F(TacticCacheTest, SharesNoUnfinishedFileWithAnotherProcess) {
  fs::path others = path_;
  others += fmt::format(".{}.part", getpid());
  fs::create_directories(path_.parent_path());
  std::ofstream unfinished(others);
  const std::string text = Text();
  ASSERT_FALSE(text.empty());
  unfinished << "what the other one writes meanwhile" << std::flush;
  EXPECT_EQ(Saved(), text);
  EXPECT_TRUE(fs::exists(others));
}

TEST_F(TacticCacheTest, SaysWhereItCannotWrite) {
  Write("");
  TacticCache cache(path_ / "below a file.json", kOwner);
  cache.Put("key", Example());
  const Status status = cache.Save();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("below a file.json"));
}

// Renaming a file over a device (a way to discard it) would replace the device.
TEST_F(TacticCacheTest, ReplacesNothingButFiles) {
  fs::create_directories(path_.parent_path());
  fs::create_symlink("/dev/null", path_);
  TacticCache cache(path_, kOwner);
  cache.Put("key", Example());
  const Status status = cache.Save();
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("no regular file"));
  EXPECT_TRUE(fs::is_symlink(path_));
}

TEST(DefaultTacticsPath, FollowsTheCacheFolder) {
  const char* cache = getenv("XDG_CACHE_HOME");
  const std::string before = cache == nullptr ? "" : cache;
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(DefaultTacticsPath(), "/somewhere/sluice/tactics.json");
  unsetenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  EXPECT_EQ(DefaultTacticsPath(),
            home == nullptr ? fs::path() : fs::path(home) / ".cache/sluice/tactics.json");
  if (cache != nullptr) setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace sluice::device
