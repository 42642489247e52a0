#include "hub/digest.h"

#include <unistd.h>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

// A file without a name.
class DigestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/sluice_digest_XXXXXX";
    file_ = ::mkstemp(name.data());
    ASSERT_GE(file_, 0);
    ::unlink(name.c_str());
  }
  void TearDown() override { ::close(file_); }
  bool Is(const std::string& content, const std::string& etag) {
    EXPECT_EQ(::ftruncate(file_, 0), 0);
    GrowingFileDigest digest(file_, std::ssize(content), etag);
    for (size_t i = 0; i < content.size(); ++i) {
      EXPECT_EQ(::pwrite(file_, &content[i], 1, static_cast<off_t>(i)), 1);
      digest.SetAvailable(static_cast<int64_t>(i) + 1);
    }
    return digest.Finish().value();
  }

  int file_ = -1;
};

// The digests of "abc" are those of FIPS 180; git's blob is that of `git hash-object`.
TEST_F(DigestTest, KnowsTheHubsDigests) {
  const std::string sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  const std::string git = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";
  const std::string sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
  EXPECT_TRUE(Is("abc", sha256));
  EXPECT_TRUE(Is("abc", git));
  EXPECT_TRUE(Is("abc", sha1));
  for (const std::string& digest : {sha256, git, sha1}) EXPECT_FALSE(Is("abd", digest)) << digest;
  EXPECT_TRUE(Is("", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"));
  EXPECT_FALSE(Is("", git));
  EXPECT_TRUE(Is("abc", "some-other-tag"));
}

TEST_F(DigestTest, AFileThatWasCutIsAnError) {
  GrowingFileDigest digest(file_, 10, std::string(64, '0'));
  digest.SetAvailable(10);
  EXPECT_FALSE(digest.Finish());
}

TEST_F(DigestTest, EndsBeforeTheFileIsWhole) {
  GrowingFileDigest digest(file_, 10, std::string(64, '0'));
}

}  // namespace
}  // namespace sluice
