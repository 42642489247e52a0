#include "hub/flush_mark.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/cached_models.h"
#include "hub/file_lock.h"

namespace sluice {
namespace {

// The SHA-256 of "abc", from FIPS 180.
const std::string kEtag = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class FlushMarkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    cache_ = std::filesystem::path(::testing::TempDir()) /
             ("sluice_marks_" + std::string(test->name()) + "_" + std::to_string(::getpid()));
    std::filesystem::remove_all(cache_);
    std::filesystem::create_directories(Blob().parent_path());
  }
  void TearDown() override { std::filesystem::remove_all(cache_); }

  RepositoryCache repository() const { return {cache_, "a/b"}; }
  std::filesystem::path Blob(const std::string& etag = kEtag) const {
    return repository().Blob(etag);
  }
  std::filesystem::path Mark(const std::string& etag = kEtag) const {
    return Blob(etag) += ".unflushed";
  }
  static void Write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  // Like a download, which leaves the lock file behind.
  void AddBlob(const std::string& content, const std::string& etag = kEtag) const {
    ASSERT_TRUE(FileLock::Acquire(repository().Lock(etag), [] {}));
    ASSERT_TRUE(MarkUnflushed(repository(), etag));
    Write(Blob(etag), content);
  }

  std::filesystem::path cache_;
};

bool IsThere(const std::filesystem::path& path) {
  return std::filesystem::exists(path);
}

TEST_F(FlushMarkTest, WithoutAMarkNothingIsLookedAt) {
  Write(Blob(), "abd");
  EXPECT_TRUE(SettleBlob(repository(), kEtag).value());
  EXPECT_TRUE(IsThere(Blob()));
}

TEST_F(FlushMarkTest, OfTheSameBootItIsFlushedAndNotRead) {
  AddBlob("abd");
  EXPECT_TRUE(IsThere(Mark()));
  EXPECT_TRUE(SettleBlob(repository(), kEtag).value());
  EXPECT_TRUE(IsThere(Blob()));
  EXPECT_FALSE(IsThere(Mark()));
}

TEST_F(FlushMarkTest, AfterAnotherBootTheDigestDecides) {
  for (const std::string mark : {"0c5e46c2-8dc6-4b71-9b5f-3a4a2c1e7f10\n", "0c5e46", ""}) {
    AddBlob("abc");
    Write(Mark(), mark);
    EXPECT_TRUE(SettleBlob(repository(), kEtag).value()) << mark;
    EXPECT_TRUE(IsThere(Blob())) << mark;
    EXPECT_FALSE(IsThere(Mark())) << mark;
    for (const std::string content : {"", "ab", "abd", "abcd"}) {
      AddBlob(content);
      Write(Mark(), mark);
      EXPECT_FALSE(SettleBlob(repository(), kEtag).value()) << mark << content;
      EXPECT_FALSE(IsThere(Blob())) << mark << content;
      EXPECT_FALSE(IsThere(Mark())) << mark << content;
    }
  }
}

TEST_F(FlushMarkTest, WhatCannotBeCheckedIsNotTrusted) {
  AddBlob("abc", "a-tag");
  Write(Mark("a-tag"), "another boot");
  EXPECT_FALSE(SettleBlob(repository(), "a-tag").value());
  EXPECT_FALSE(IsThere(Blob("a-tag")));
}

TEST_F(FlushMarkTest, WhatIsBeingWrittenIsLeftAlone) {
  AddBlob("abd");
  {
    const auto lock = FileLock::Acquire(repository().Lock(kEtag), [] {});
    ASSERT_TRUE(lock);
    EXPECT_TRUE(SettleBlob(repository(), kEtag).value());
    EXPECT_TRUE(IsThere(Mark()));
  }
  EXPECT_TRUE(SettleBlob(repository(), kEtag).value());
  EXPECT_FALSE(IsThere(Mark()));
}

TEST_F(FlushMarkTest, AllOfARepository) {
  const std::string other(64, '0');
  AddBlob("abc");
  AddBlob("abc", other);
  Write(Mark(), "another boot");
  Write(Mark(other), "another boot");
  ASSERT_TRUE(MarkUnflushed(repository(), "absent"));
  Write(Mark("absent"), "another boot");
  ASSERT_TRUE(SettleBlobs(repository()));
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(Blob().parent_path()))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::ElementsAre(kEtag));
}

// Marks that remain are checked when a model is served, which may take minutes.
TEST_F(FlushMarkTest, ARevisionIsRemovedWithItsMarksAlone) {
  const std::string commits[] = {std::string(40, 'a'), std::string(40, 'b')};
  const std::string etags[] = {kEtag, std::string(64, '1')};
  for (int i = 0; i < 2; ++i) {
    AddBlob("abc", etags[i]);
    Write(Mark(etags[i]), "another boot");
    ASSERT_TRUE(repository().LinkFile(commits[i], "config.json", etags[i], /*copy=*/false));
  }
  ASSERT_TRUE(RemoveCachedModel(cache_, "a/b", commits[0]));
  EXPECT_FALSE(IsThere(Blob()));
  EXPECT_FALSE(IsThere(Mark()));
  EXPECT_FALSE(IsThere(repository().Snapshot(commits[0])));
  EXPECT_TRUE(IsThere(Blob(etags[1]))) << "it would be damaged, was it looked at";
  EXPECT_TRUE(IsThere(Mark(etags[1])));
}

TEST_F(FlushMarkTest, OfNoCache) {
  EXPECT_TRUE(SettleBlobs(RepositoryCache(cache_ / "absent", "a/b")));
  EXPECT_FALSE(MarkUnflushed(RepositoryCache(cache_ / "absent", "a/b"), kEtag));
}

}  // namespace
}  // namespace sluice
