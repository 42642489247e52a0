#include "cli/near_folder.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(NearFolder, FindsTheFolderThatAMistypedPathMeans) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "near_folder";
  std::filesystem::create_directories(root / "models" / "abacus");
  std::filesystem::create_directories(root / "models" / "empty");
  std::ofstream(root / "models" / "abacus" / "config.json") << "{}";
  const std::string right = (root / "models" / "abacus").string();
  for (const char* wrong : {"modles/abacus", "models/abcus", "model/abacus/", "modles/abaqus"})
    EXPECT_EQ(NearModelFolder((root / wrong).string()), right) << wrong;
  EXPECT_EQ(NearModelFolder((root / "models" / "emty").string()), "");
  EXPECT_EQ(NearModelFolder((root / "weights" / "abacus").string()), "");
  EXPECT_EQ(NearModelFolder(""), "");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace sluice::cli
