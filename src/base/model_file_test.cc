#include "base/model_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    place_ = fs::path(::testing::TempDir()) / "model-file-test";
    fs::remove_all(place_);
    Write("elsewhere/secret", "secret");
    Write("model/own", "own");
    Write("model/inner/file", "inner");
    Write("model-2/file", "another model");
  }
  void TearDown() override { fs::remove_all(place_); }
  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((place_ / path).parent_path());
    std::ofstream(place_ / path) << text;
  }
  // Returns the content of the file, or the error.
  std::string Read(const fs::path& folder, const fs::path& name, uint64_t max_bytes = 100) {
    const auto text = ReadModelFile(place_ / folder, name, max_bytes);
    return text ? *text : "error: " + text.error().message;
  }
  fs::path place_;
};

TEST_F(ModelFileTest, LinksInsideTheFolderAreFollowed) {
  fs::create_symlink("inner/file", place_ / "model/relative");
  fs::create_symlink(place_ / "model/own", place_ / "model/absolute");
  fs::create_symlink(place_ / "model", place_ / "link");
  EXPECT_EQ(Read("model", "own"), "own");
  EXPECT_EQ(Read("model", "relative"), "inner");
  EXPECT_EQ(Read("model", "absolute"), "own");
  EXPECT_EQ(Read("model", "inner/file"), "inner");
  EXPECT_EQ(Read("link", "own"), "own") << "the folder itself may be a link";
  EXPECT_EQ(Read("model/", "own"), "own");
}

TEST_F(ModelFileTest, LinksOutOfTheFolderAreRefused) {
  fs::create_symlink("../elsewhere/secret", place_ / "model/relative");
  fs::create_symlink(place_ / "elsewhere/secret", place_ / "model/absolute");
  fs::create_symlink("relative", place_ / "model/twice");
  fs::create_symlink("../model-2/file", place_ / "model/sibling");
  fs::create_directory_symlink(place_ / "elsewhere", place_ / "model/folder");
  for (const char* name : {"relative", "absolute", "twice", "sibling", "folder/secret"}) {
    EXPECT_THAT(Read("model", name), HasSubstr(std::string("model/") + name + " links to "))
        << name;
  }
  EXPECT_EQ(ReadModelFile(place_ / "model", "twice", 100).error().code, ErrorCode::kInvalidData);
}

TEST_F(ModelFileTest, BlobsOfACacheAreFollowed) {
  Write("hub/models--a--b/blobs/0123", "blob");
  Write("hub/other/blobs/0123", "no blob");
  Write("hub/models--a--b/refs/main", "no blob");
  fs::create_directories(place_ / "hub/models--a--b/snapshots/abc");
  fs::create_symlink("../../blobs/0123", place_ / "hub/models--a--b/snapshots/abc/file");
  fs::create_symlink("../../refs/main", place_ / "hub/models--a--b/snapshots/abc/ref");
  fs::create_symlink(place_ / "hub/models--a--b/blobs/0123", place_ / "model/blob");
  fs::create_symlink(place_ / "hub/other/blobs/0123", place_ / "model/other");
  EXPECT_EQ(Read("hub/models--a--b/snapshots/abc", "file"), "blob");
  EXPECT_EQ(Read("model", "blob"), "blob");
  EXPECT_THAT(Read("hub/models--a--b/snapshots/abc", "ref"), HasSubstr("links to"));
  EXPECT_THAT(Read("model", "other"), HasSubstr("links to"));
}

TEST_F(ModelFileTest, OtherErrorsAreThoseOfReading) {
  EXPECT_EQ(ReadModelFile(place_ / "model", "nothing", 100).error().code, ErrorCode::kNotFound);
  fs::create_symlink("nothing", place_ / "model/broken");
  EXPECT_EQ(ReadModelFile(place_ / "model", "broken", 100).error().code, ErrorCode::kInvalidData);
  EXPECT_THAT(Read("model", "own", 2), HasSubstr("own"));
}

}  // namespace
}  // namespace sluice
