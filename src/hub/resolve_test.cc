#include "hub/resolve.h"

#include <unistd.h>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

const std::string kCommitA = "0123456789abcdef0123456789abcdef01234567";
const std::string kCommitB = "89abcdef0123456789abcdef0123456789abcdef";

class ResolveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("sluice_resolve_" + std::string(test->name()) + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    environment_.home = (root_ / "home").string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A model in a cache folder: its snapshots, and refs/main unless `main` is empty.
  void AddModel(const std::filesystem::path& cache, const std::string& name,
                const std::vector<std::string>& commits, const std::string& main) {
    for (const std::string& commit : commits)
      Write(cache / name / "snapshots" / commit / "config.json", "{}");
    if (!main.empty()) Write(cache / name / "refs/main", main);
  }
  Result<ResolvedModel> Resolve(const std::string& argument, const std::string& revision = "",
                                const std::string& download_dir = "") {
    return ResolveModel({.argument = argument, .download_dir = download_dir, .revision = revision},
                        environment_);
  }

  std::filesystem::path root_;
  HubEnvironment environment_;
};

TEST_F(ResolveTest, TakesAFolderAsItIs) {
  std::filesystem::create_directories(root_ / "model");
  const auto model = Resolve((root_ / "model/").string());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->folder, root_ / "model/");
  EXPECT_FALSE(model->from_cache);
}

TEST_F(ResolveTest, ExpandsTheHomeFolder) {
  std::filesystem::create_directories(root_ / "home/model");
  const auto model = Resolve("~/model");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->folder, root_ / "home/model");
}

TEST_F(ResolveTest, FollowsMainToItsSnapshot) {
  AddModel(root_ / "home/.cache/huggingface/hub", "models--meta-llama--Llama-3.2-1B",
           {kCommitA, kCommitB}, kCommitB + "\n");
  for (const char* argument : {"meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B/"}) {
    const auto model = Resolve(argument);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->folder.filename(), kCommitB);
    EXPECT_EQ(model->commit, kCommitB);
    EXPECT_EQ(model->name, argument);
    EXPECT_TRUE(model->from_cache);
  }
}

TEST_F(ResolveTest, LooksWhereTheEnvironmentSaysInOrder) {
  const auto cache = [&] { return environment_.CacheFolder(); };
  EXPECT_EQ(cache(), root_ / "home/.cache/huggingface/hub");
  environment_.xdg_cache_home = "/x";
  EXPECT_EQ(cache(), "/x/huggingface/hub");
  environment_.hf_home = "/h";
  EXPECT_EQ(cache(), "/h/hub");
  environment_.huggingface_hub_cache = "/old";
  EXPECT_EQ(cache(), "/old");
  environment_.hf_hub_cache = "~/c";
  EXPECT_EQ(cache(), root_ / "home/c");
}

TEST_F(ResolveTest, DownloadDirTakesTheCachesPlace) {
  AddModel(root_ / "own", "models--gpt2", {kCommitA}, kCommitA);
  EXPECT_FALSE(Resolve("gpt2"));
  const auto model = Resolve("gpt2", "", (root_ / "own").string());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->commit, kCommitA);
}

TEST_F(ResolveTest, TheOnlySnapshotCountsWithoutRefs) {
  const auto cache = environment_.CacheFolder();
  AddModel(cache, "models--a--one", {kCommitA}, "");
  AddModel(cache, "models--a--two", {kCommitA, kCommitB}, "");
  EXPECT_TRUE(Resolve("a/one"));
  EXPECT_FALSE(Resolve("a/one", "v1"));
  const auto two = Resolve("a/two");
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(two.error().message, HasSubstr(kCommitA));
  EXPECT_TRUE(Resolve("a/two", kCommitA));
}

// An unreadable reference must not lead to another commit.
TEST_F(ResolveTest, AReferenceThatCannotBeReadIsNamed) {
  const std::filesystem::path cache = root_ / "home/.cache/huggingface/hub";
  AddModel(cache, "models--org--name", {kCommitA}, "");
  std::filesystem::create_directories(cache / "models--org--name/refs/main");
  const auto model = Resolve("org/name");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("refs/main must be a regular file"));
}

TEST_F(ResolveTest, FindsBranchesTagsAndCommits) {
  const auto cache = environment_.CacheFolder();
  AddModel(cache, "models--a--b", {kCommitA, kCommitB}, kCommitA);
  Write(cache / "models--a--b/refs/refs/pr/7", kCommitB);
  EXPECT_EQ(Resolve("a/b", "refs/pr/7")->commit, kCommitB);
  EXPECT_EQ(Resolve("a/b", kCommitB)->commit, kCommitB);
  EXPECT_EQ(Resolve("a/b", "main")->commit, kCommitA);
  EXPECT_FALSE(Resolve("a/b", "v2"));
}

TEST_F(ResolveTest, TellsWhereItLookedAndWhatToDo) {
  const auto model = Resolve("meta-llama/Llama-3.2-1B", "v1");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(
      model.error().message,
      HasSubstr((environment_.CacheFolder() / "models--meta-llama--Llama-3.2-1B").string()));
  EXPECT_THAT(model.error().message,
              HasSubstr("sluice pull meta-llama/Llama-3.2-1B --revision v1"));
}

TEST_F(ResolveTest, RefusesWhatIsNoModel) {
  EXPECT_EQ(Resolve("").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Resolve("/no/such/folder").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Resolve("../no-such-folder").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Resolve("a/b/c").error().code, ErrorCode::kNotFound);
  Write(root_ / "model.gguf", "GGUF");
  EXPECT_EQ(Resolve((root_ / "model.gguf").string()).error().code, ErrorCode::kUnsupported);
}

TEST_F(ResolveTest, NeverLeavesTheCache) {
  const auto cache = environment_.CacheFolder();
  AddModel(cache, "models--a--b", {kCommitA}, "../../../../etc");
  EXPECT_EQ(Resolve("a/b").error().code, ErrorCode::kInvalidData);
  EXPECT_EQ(Resolve("a/b", "../../x").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Resolve("a/b", "/etc/passwd").error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ResolveTest, FindsTheModelOfAPage) {
  AddModel(environment_.CacheFolder(), "models--a--b", {kCommitA, kCommitB}, kCommitA);
  Write(environment_.CacheFolder() / "models--a--b/refs/v1", kCommitB);
  const auto model = Resolve("https://huggingface.co/a/b/tree/v1");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->name, "a/b");
  EXPECT_EQ(model->commit, kCommitB);
  EXPECT_EQ(Resolve("hf.co/a/b", "main")->commit, kCommitA);
}

}  // namespace
}  // namespace sluice
