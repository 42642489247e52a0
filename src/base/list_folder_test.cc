#include "base/list_folder.h"

#include <algorithm>
#include <fstream>
#include <new>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/work_budget.h"

namespace sluice {
namespace {

class ListFolderTest : public ::testing::Test {
 protected:
  ListFolderTest() : folder_(::testing::TempDir() + "list_folder-XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~ListFolderTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(ListFolderTest, GivesAllEntries) {
  const std::filesystem::path folder(folder_);
  std::ofstream(folder / "file.txt") << "x";
  std::filesystem::create_directory(folder / "folder");
  std::ofstream(folder / "folder" / "below") << "x";
  std::filesystem::create_symlink("nothing", folder / "link");
  std::error_code error = std::make_error_code(std::errc::io_error);
  std::vector<std::filesystem::path> paths = ListFolder(folder, error);
  EXPECT_FALSE(error);
  EXPECT_THAT(paths, ::testing::UnorderedElementsAre(folder / "file.txt", folder / "folder",
                                                     folder / "link"));
}

TEST_F(ListFolderTest, SaysWhyThereAreNone) {
  std::error_code error;
  EXPECT_TRUE(ListFolder(folder_ + "/none", error).empty());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_TRUE(ListFolder(folder_ + "/file", error).empty());
  EXPECT_EQ(error, std::errc::not_a_directory);
}

// Each allocation fails once: it throws, and the program goes on.
TEST_F(ListFolderTest, LackOfMemoryThrows) {
  for (int i = 0; i < 3; ++i) std::ofstream(folder_ + "/" + std::string(100, 'a' + i)) << "x";
  const std::filesystem::path folder(folder_);
  int num_thrown = 0;
  for (int64_t limit = 0; limit < 8192; limit += 32) {
    std::error_code error;
    try {
      const WorkBudget budget({.cpu_seconds = 1e9, .bytes = limit});
      EXPECT_EQ(ListFolder(folder, error).size(), 3u);
    } catch (const std::bad_alloc&) {
      ++num_thrown;
    }
    EXPECT_FALSE(error);
  }
  EXPECT_GT(num_thrown, 10);
  EXPECT_LT(num_thrown, 8192 / 32);
}

}  // namespace
}  // namespace sluice
