#include "base/file.h"

#include <fstream>

#include <gtest/gtest.h>

namespace sluice {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() : path_(testing::TempDir() + "sluice_file_test") { std::ofstream(path_) << "hello"; }
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
  EXPECT_EQ(ReadFile(testing::TempDir()).error().code, ErrorCode::kInvalidData);
  EXPECT_NE(MappedFile::Open(path_.string() + ".absent").error().message.find("absent"),
            std::string::npos);
}

TEST_F(FileTest, MapsAnEmptyFile) {
  std::ofstream(path_, std::ios::trunc);
  EXPECT_TRUE(MappedFile::Open(path_)->bytes().empty());
}

}  // namespace
}  // namespace sluice
