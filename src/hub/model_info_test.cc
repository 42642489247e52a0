#include "hub/model_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kSha = "0123456789abcdef0123456789abcdef01234567";

TEST(ModelInfoTest, ReadsCommitAndFiles) {
  const auto info = ParseModelInfo(R"({"id":"a/b","sha":")" + kSha +
                                   R"(","siblings":[{"rfilename":"config.json","size":1},)"
                                   R"({"rfilename":"../../x"},{"rfilename":"/etc/passwd"},)"
                                   R"({"rfilename":"d/e.jinja"}]})");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->commit, kSha);
  EXPECT_THAT(info->files, ElementsAre("config.json", "d/e.jinja"));
}

TEST(ModelInfoTest, SaysWhatItExpected) {
  struct Case {
    std::string text;
    const char* says;
  };
  for (const Case& bad : std::initializer_list<Case>{
           {"<html>", "a JSON object"},
           {"", "a JSON object"},
           {"[]", "a JSON object"},
           {"{}", "sha"},
           {R"({"sha":"main","siblings":[]})", "sha"},
           {R"({"sha":"../../../../../../../../../../../../../../","siblings":[]})", "sha"},
           {R"({"sha":")" + kSha + R"("})", "siblings"},
           {R"({"sha":")" + kSha + R"(","siblings":{}})", "siblings"},
           {R"({"sha":")" + kSha + R"(","siblings":[1]})", "rfilename"},
           {R"({"sha":")" + kSha + R"(","siblings":[{"rfilename":5}]})", "rfilename"},
       }) {
    const auto info = ParseModelInfo(bad.text);
    ASSERT_FALSE(info) << bad.text;
    EXPECT_THAT(info.error().message, HasSubstr(bad.says)) << bad.text;
  }
}

TEST(ModelInfoTest, ReadsLists) {
  EXPECT_THAT(ParseModelList(R"([{"id":"a/b"},{"id":5},{"id":"../x"},{},{"id":"c"}])"),
              ElementsAre("a/b", "c"));
  EXPECT_THAT(ParseModelList("<html>"), IsEmpty());
}

TEST(ModelInfoTest, ReadsWhatHeadersSayOfAFile) {
  const auto file = ParseFileInfo("\"abc-1\"", "12");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->etag, "abc-1");
  EXPECT_EQ(file->size, 12);
  EXPECT_EQ(ParseFileInfo("W/\"abc\"", "0")->etag, "abc");
  EXPECT_EQ(ParseFileInfo("abc", "0")->etag, "abc");
  for (const char* etag : {"", "\"\"", "\"../x\"", "\"a/b\"", "\"a.incomplete\"", "\"a b\""})
    EXPECT_FALSE(ParseFileInfo(etag, "1")) << etag;
  for (const char* size : {"", "-1", "1x", "99999999999999999999", " 1"})
    EXPECT_FALSE(ParseFileInfo("\"a\"", size)) << size;
}

}  // namespace
}  // namespace sluice
