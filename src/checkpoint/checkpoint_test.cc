#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeSafetensors;
using testing::TemporaryFolder;
using testing::WriteFile;

class CheckpointTest : public ::testing::Test {
 protected:
  void AddFile(const std::string& name, const std::vector<testing::TestTensor>& tensors) {
    WriteFile(folder_.path() / name, MakeSafetensors(tensors));
  }
  void AddIndex(const std::string& text) {
    WriteFile(folder_.path() / "model.safetensors.index.json", text);
  }
  Result<Checkpoint> Open() { return Checkpoint::Open(folder_.path()); }
  std::string Failure() {
    const auto checkpoint = Open();
    return checkpoint ? "opened" : checkpoint.error().message;
  }
  static std::string Text(const StoredTensor* tensor) {
    if (tensor == nullptr) return "(none)";
    const auto bytes = tensor->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointTest, ReadsASingleFile) {
  AddFile("model.safetensors", {{"a", "U8", {1}, "1"}, {"b", "U8", {2}, "22"}});
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(Text(checkpoint->Find("b")), "22");
  EXPECT_EQ(checkpoint->Find("c"), nullptr);
  EXPECT_EQ(checkpoint->total_bytes(), 3);
}

TEST_F(CheckpointTest, TheIndexDecidesWhichCopyCounts) {
  AddFile("one.safetensors", {{"a", "U8", {1}, "1"}, {"b", "U8", {1}, "s"}});
  AddFile("two.safetensors", {{"a", "U8", {1}, "s"}, {"b", "U8", {1}, "2"}});
  AddFile("consolidated.safetensors", {{"a", "U8", {1}, "x"}, {"c", "U8", {1}, "x"}});
  AddIndex(
      R"({"metadata":{"total_size":2},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(Text(checkpoint->Find("a")), "1");
  EXPECT_EQ(Text(checkpoint->Find("b")), "2");
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->files().size(), 2u);
  EXPECT_EQ(checkpoint->total_bytes(), 2);
}

TEST_F(CheckpointTest, AWrongTotalSizeDoesNoHarm) {
  AddFile("one.safetensors", {{"a", "U8", {1}, "1"}});
  for (const char* size : {"99", "99.5", "-1", "\"x\"", "null", "[1]"}) {
    AddIndex(fmt::format(
        R"({{"metadata":{{"total_size":{}}},"weight_map":{{"a":"one.safetensors"}}}})", size));
    EXPECT_TRUE(Open()) << size << Failure();
  }
}

TEST_F(CheckpointTest, AMissingShardNamesItsTensors) {
  AddFile("one.safetensors", {{"a", "U8", {1}, "1"}});
  AddIndex(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"}})");
  EXPECT_THAT(Failure(),
              AllOf(HasSubstr("two.safetensors is missing"), HasSubstr("2 tensors (b, c)")));
}

TEST_F(CheckpointTest, AnIncompleteOneIsReadByTheFilesThatAreThere) {
  AddFile("one.safetensors", {{"a", "U8", {1}, "1"}});
  AddIndex(R"({"metadata":{"total_size":4},"weight_map":{"a":"one.safetensors",
              "b":"two.safetensors","c":"two.safetensors","d":"zero.safetensors"}})");
  const auto indexed = Checkpoint::OpenIncomplete(folder_.path());
  ASSERT_TRUE(indexed) << indexed.error().message;
  EXPECT_EQ(indexed->tensors().size(), 1u);
  EXPECT_THAT(indexed->missing_files(), ElementsAre("two.safetensors", "zero.safetensors"));
  EXPECT_THAT(indexed->missing_shard(),
              AllOf(HasSubstr("two.safetensors is missing"), HasSubstr("2 tensors (b, c)")));
  std::filesystem::remove(folder_.path() / "model.safetensors.index.json");
  AddFile("model-00002-of-00003.safetensors", {{"a", "U8", {1}, "1"}});
  const auto numbered = Checkpoint::OpenIncomplete(folder_.path());
  ASSERT_TRUE(numbered) << numbered.error().message;
  EXPECT_EQ(numbered->tensors().size(), 1u);
  EXPECT_THAT(numbered->missing_files(),
              ElementsAre("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"));
  EXPECT_THAT(numbered->missing_shard(), HasSubstr("model-00001-of-00003.safetensors is missing"));
  AddFile("model-00001-of-00003.safetensors", {{"b", "U8", {1}, "1"}});
  AddFile("model-00003-of-00003.safetensors", {{"c", "U8", {1}, "1"}});
  const auto whole = Checkpoint::OpenIncomplete(folder_.path());
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->missing_shard(), "");
}

// Following this link must give a system error, not an exception.
TEST_F(CheckpointTest, AShardThatLinksToItselfIsNamed) {
  std::filesystem::create_symlink("two.safetensors", folder_.path() / "two.safetensors");
  AddIndex(R"({"weight_map":{"b":"two.safetensors"}})");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("cannot open"), HasSubstr("two.safetensors")));
}

TEST_F(CheckpointTest, ATensorThatItsShardLacksIsNamed) {
  AddFile("one.safetensors", {{"a", "U8", {1}, "1"}});
  AddIndex(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("one.safetensors"), HasSubstr("not in this file: b")));
}

TEST_F(CheckpointTest, ADamagedShardIsNamed) {
  AddFile("one.safetensors", {{"a", "U8", {1}, "1"}});
  WriteFile(folder_.path() / "two.safetensors",
            MakeSafetensors({{"b", "U8", {4}, "1234"}}).substr(0, 60));
  AddIndex(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(Failure(), AllOf(HasSubstr("two.safetensors"), HasSubstr("may be truncated")));
}

TEST_F(CheckpointTest, FileNamesNeverLeaveTheFolder) {
  WriteFile(folder_.path() / "inside/x", "");
  for (const char* name : {"../one.safetensors", "/etc/passwd", "a/../../x", "inside/x", "..", ".",
                           "", "a\\\\b", "a\\u0000b"}) {
    AddIndex(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    EXPECT_THAT(Failure(), HasSubstr("plain file name")) << name;
  }
}

TEST_F(CheckpointTest, RefusesABadIndex) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "invalid JSON"},
      {"[]", "must be an object"},
      {"{}", "no weight_map"},
      {R"({"weight_map":[]})", "weight_map must be an object"},
      {R"({"weight_map":{"a":1}})", "'a' must be a file name"},
      {R"({"weight_map":{"a":"x","a":"y"}})", "duplicate key 'a'"},
      {R"({"weight_map":{},"weight_map":{}})", "duplicate key"},
      {R"({"weight_map":{"a":"x"}} trailing)", "after the value"},
      {"{\"weight_map\":{\"\xff\":\"x\"}}", "UTF-8"},
      {R"({"metadata":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]],"weight_map":{}})",
       "nested deeper"},
  };
  for (const auto& test : kCases) {
    AddIndex(test.text);
    EXPECT_THAT(Failure(),
                AllOf(HasSubstr(test.message), HasSubstr("model.safetensors.index.json")))
        << test.text;
  }
}

TEST_F(CheckpointTest, ANumberedSetNeedsNoIndexIfComplete) {
  AddFile("model-00001-of-00002.safetensors", {{"a", "U8", {1}, "1"}});
  EXPECT_THAT(Failure(), HasSubstr("model-00002-of-00002.safetensors is missing"));
  AddFile("model-00002-of-00002.safetensors", {{"b", "U8", {1}, "2"}});
  AddFile("other.safetensors", {{"a", "U8", {1}, "x"}});
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  AddFile("model-00002-of-00002.safetensors", {{"a", "U8", {1}, "2"}});
  EXPECT_THAT(Failure(), HasSubstr("'a' is in both"));
  AddFile("model-00001-of-00003.safetensors", {{"a", "U8", {1}, "1"}});
  EXPECT_THAT(Failure(), HasSubstr("that selects one"));
}

TEST_F(CheckpointTest, AFolderWithoutWeightsSaysWhatIsExpected) {
  EXPECT_THAT(Failure(), HasSubstr("model.safetensors"));
  WriteFile(folder_.path() / "pytorch_model.bin", "x");
  EXPECT_THAT(Failure(), HasSubstr("holds pytorch_model.bin and no safetensors"));
  EXPECT_EQ(Checkpoint::Open(folder_.path() / "none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace sluice
