#include "hub/content_writer.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/digest.h"

namespace sluice {
namespace {

// Uses an unnamed temporary file.
class ContentWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/sluice_content_XXXXXX";
    file_ = ::mkstemp(name.data());
    ASSERT_GE(file_, 0);
    ::unlink(name.c_str());
  }
  void TearDown() override { ::close(file_); }

  bool Is(const std::string& content, const std::string& etag) {
    EXPECT_EQ(::ftruncate(file_, 0), 0);
    ContentWriter writer(file_, 0, std::ssize(content), etag);
    for (const char c : content) EXPECT_EQ(writer.Append({&c, 1}), 0);
    EXPECT_EQ(writer.Flush(), 0);
    return writer.Finish().value();
  }
  std::string InFile(size_t size) const {
    std::string content(size, '\0');
    EXPECT_EQ(::pread(file_, content.data(), size, 0), static_cast<ssize_t>(size));
    return content;
  }

  int file_ = -1;
};

std::string Sha256(const std::string& content) {
  std::array<unsigned char, 32> bytes = {};
  EVP_Digest(content.data(), content.size(), bytes.data(), nullptr, EVP_sha256(), nullptr);
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string RandomContent(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string content(size, '\0');
  std::generate(content.begin(), content.end(), [&] { return static_cast<char>(random()); });
  return content;
}

// The SHA-256 and SHA-1 of "abc" are from FIPS 180; git's blob hash is from `git hash-object`.
TEST_F(ContentWriterTest, KnowsTheHubsDigests) {
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

// More content than the ring holds, in parts of all sizes, after initial content that the digest
// must read from the file while more arrives.
TEST_F(ContentWriterTest, ManyPartsAfterABeginning) {
  const std::string content = RandomContent((size_t{23} << 20) + 12345, 1);
  const std::string etag = Sha256(content);
  for (const size_t begin : {size_t{0}, size_t{1}, size_t{777'777}, size_t{16} << 20}) {
    for (const bool wrong : {false, true}) {
      ASSERT_EQ(::ftruncate(file_, 0), 0);
      ASSERT_EQ(::pwrite(file_, content.data(), begin, 0), static_cast<ssize_t>(begin));
      std::string sent = content;
      if (wrong) sent[begin + 9'000'000 % (sent.size() - begin)] ^= 1;
      ContentWriter writer(file_, static_cast<int64_t>(begin), std::ssize(content), etag);
      std::mt19937 random(2);
      for (size_t place = begin; place < sent.size();) {
        const size_t size = std::min<size_t>(sent.size() - place, random() % 3'000'000);
        ASSERT_EQ(writer.Append({&sent[place], size}), 0);
        place += size;
        EXPECT_EQ(writer.appended(), static_cast<int64_t>(place));
        if (random() % 2 != 0) continue;
        ASSERT_EQ(writer.Flush(), 0);
        EXPECT_EQ(writer.written(), static_cast<int64_t>(place));
      }
      ASSERT_EQ(writer.Flush(), 0);
      EXPECT_EQ(InFile(sent.size()), sent);
      EXPECT_EQ(writer.Finish().value(), !wrong) << begin;
    }
  }
}

TEST_F(ContentWriterTest, AFileThatWasCutIsAnError) {
  ContentWriter writer(file_, 10, 10, std::string(64, '0'));
  EXPECT_FALSE(writer.Finish());
}

TEST_F(ContentWriterTest, SaysWhyAFileCannotBeWritten) {
  ContentWriter writer(-1, 0, 10, "a tag");
  EXPECT_EQ(writer.Append("abc"), 0);
  EXPECT_EQ(writer.Flush(), EBADF);
  EXPECT_EQ(writer.written(), 0);
}

TEST_F(ContentWriterTest, EndsBeforeTheFileIsWhole) {
  ContentWriter writer(file_, 0, 10, std::string(64, '0'));
  EXPECT_EQ(writer.Append("abc"), 0);
}

}  // namespace
}  // namespace sluice
