#include "base/scratch_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace sluice {
namespace {

TEST(ScratchFolder, IsRemovedWithItsFiles) {
  std::filesystem::path path;
  {
    auto made = ScratchFolder::Make("sluice-test");
    ASSERT_TRUE(made) << made.error().message;
    const ScratchFolder folder = std::move(*made);
    path = folder.path();
    EXPECT_TRUE(std::filesystem::is_directory(path));
    EXPECT_TRUE(path.filename().string().starts_with("sluice-test-"));
    std::ofstream(path / "file") << "text";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ScratchFolder, NamesTheFolderThatIsMissing) {
  const char* const before = getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("TMPDIR", "/no/such/folder", 1);
  const auto made = ScratchFolder::Make("sluice-test");
  before != nullptr ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, ::testing::HasSubstr("TMPDIR"));
}

}  // namespace
}  // namespace sluice
