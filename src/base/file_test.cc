#include "base/file.h"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace sluice {
namespace {

class FileTest : public ::testing::Test {
 protected:
  FileTest() : path_(::testing::TempDir() + "sluice_file_test") { std::ofstream(path_) << "hello"; }
  ~FileTest() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_F(FileTest, ReadsAndMapsTheSameBytes) {
  EXPECT_EQ(ReadFile(path_).value(), "hello");
  const auto mapped = MappedFile::Open(path_);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(
      std::string(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()),
      "hello");
}

TEST_F(FileTest, SaysWhatIsWrong) {
  EXPECT_EQ(ReadFile(path_.string() + ".absent").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadFile(path_, 4).error().code, ErrorCode::kInvalidData);
  EXPECT_EQ(ReadFile(::testing::TempDir()).error().code, ErrorCode::kInvalidData);
  EXPECT_NE(MappedFile::Open(path_.string() + ".absent").error().message.find("absent"),
            std::string::npos);
}

// Opening a pipe without a writer must not block the program.
TEST_F(FileTest, RefusesAPipeAtOnce) {
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const std::string refusal = path_.string() + " must be a regular file, found a pipe";
  EXPECT_EQ(ReadFile(path_).error().message, refusal);
  EXPECT_EQ(MappedFile::Open(path_).error().message, refusal);
  EXPECT_NE(ReadFile("/dev/zero").error().message.find("found a device"), std::string::npos);
}

// A missing file means that defaults apply. A broken link must not count as a missing file.
TEST_F(FileTest, TellsABrokenLinkFromAnAbsentFile) {
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("no_such_blob", path_);
  const Error broken = ReadFile(path_).error();
  EXPECT_EQ(broken.code, ErrorCode::kInvalidData);
  EXPECT_NE(broken.message.find("it is a link to no_such_blob, which does not exist"),
            std::string::npos);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(path_, path_);
  EXPECT_EQ(ReadFile(path_).error().code, ErrorCode::kInvalidData);
}

TEST_F(FileTest, MapsAnEmptyFile) {
  { const std::ofstream empty(path_, std::ios::trunc); }
  EXPECT_TRUE(MappedFile::Open(path_)->bytes().empty());
}

}  // namespace
}  // namespace sluice
