#include "cli/conversation.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

TEST(Conversation, TheSystemsMessageStaysAtTheFront) {
  Conversation talk;
  talk.Add("user", "one");
  talk.SetSystem("be short");
  talk.SetSystem("be long");
  EXPECT_EQ(json::Write(talk.ToJson()),
            R"([{"role":"system","content":"be long"},{"role":"user","content":"one"}])");
  EXPECT_EQ(talk.System(), "be long");
  talk.Clear();
  EXPECT_EQ(json::Write(talk.ToJson()), R"([{"role":"system","content":"be long"}])");
  talk.SetSystem("");
  EXPECT_EQ(talk.size(), 0);
  EXPECT_EQ(talk.System(), "");
}

TEST(Conversation, ImagesStandBeforeTheirQuestion) {
  Conversation talk;
  talk.Add("what?", std::vector<std::string>{"data:image/png;base64,AAAA"});
  EXPECT_EQ(
      json::Write(talk.ToJson()),
      R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},)"
      R"({"type":"text","text":"what?"}]}])");
  talk.Clear();
  talk.Add("what?", std::vector<std::string>());
  EXPECT_EQ(json::Write(talk.ToJson()), R"([{"role":"user","content":"what?"}])");
}

TEST(Conversation, WhatIsSavedIsLoaded) {
  const std::string file = ::testing::TempDir() + "conversation.json";
  Conversation talk;
  talk.SetSystem("be short");
  talk.Add("user", "two\nlines");
  AnswerEnd answer;
  answer.calls.push_back({"call_1", "sum", R"({"a":1})"});
  talk.Add(answer);
  ASSERT_TRUE(talk.Save(file));
  Conversation other;
  ASSERT_TRUE(other.Load(file));
  EXPECT_EQ(json::Write(other.ToJson()), json::Write(talk.ToJson()));
  EXPECT_THAT(json::Write(other.ToJson()), HasSubstr(R"("tool_calls":[{"id":"call_1")"));
}

TEST(Conversation, AFileThatIsNoneIsRefusedAndChangesNothing) {
  const std::string file = ::testing::TempDir() + "no_conversation.json";
  const auto problem = [&](const char* text) {
    std::ofstream(file, std::ios::trunc) << text;
    Conversation talk;
    talk.Add("user", "kept");
    const Status status = talk.Load(file);
    EXPECT_EQ(talk.size(), 1);
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(problem("{"), HasSubstr(file));
  EXPECT_THAT(problem("{}"), HasSubstr("expected a conversation"));
  EXPECT_THAT(problem(R"([{"role":"user","content":"a"}, 1])"), HasSubstr("message 1 has no role"));
  Conversation talk;
  EXPECT_EQ(talk.Load(file + ".absent").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(talk.Save("/nowhere/file").error().message, HasSubstr("/nowhere/file"));
}

}  // namespace
}  // namespace sluice::cli
