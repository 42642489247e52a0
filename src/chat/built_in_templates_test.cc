#include "chat/built_in_templates.h"

#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/source_path_testing.h"
#include "chat/chat_prompt.h"

namespace sluice {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

ChatTemplate Compiled(std::string_view mode) {
  return ChatTemplate::Compile(std::string(BuiltInTemplate(mode)), std::string(mode)).value();
}

Result<std::string> Render(const ChatTemplate& built_in, const std::string& messages,
                           const ChatPromptOptions& options = {}) {
  return RenderChatPrompt(built_in, {}, json::Parse(messages).value(), options);
}

// The prompts of vLLM's encoders, written by tools/chat_templates/make_built_in_cases.py.
TEST(BuiltInTemplates, RecordedPrompts) {
  std::ifstream file(SourcePath("tests/data/chat_templates/built_in.jsonl"));
  std::string line;
  std::map<std::string, int> counts;
  while (std::getline(file, line)) {
    const json::Value row = json::Parse(line).value();
    const std::string name = row.Find("template")->as_string();
    ChatPromptOptions options;
    options.tools = *row.Find("tools");
    options.chat_template_kwargs = *row.Find("kwargs");
    const auto prompt = RenderChatPrompt(Compiled(name), {}, *row.Find("messages"), options);
    ASSERT_TRUE(prompt.has_value()) << line << ": " << prompt.error().message;
    EXPECT_EQ(*prompt, row.Find("expected")->as_string()) << line;
    ++counts[name];
  }
  EXPECT_GE(counts["deepseek_v32"], 20);
  EXPECT_GE(counts["deepseek_v4"], 20);
}

TEST(BuiltInTemplates, PromptsThatEndWithTheMessages) {
  for (const char* mode : {"deepseek_v32", "deepseek_v4"}) {
    const ChatTemplate built_in = Compiled(mode);
    const std::string user = R"([{"role": "user", "content": "Hi"}])";
    ChatPromptOptions open;
    open.add_generation_prompt = false;
    const auto unanswered = Render(built_in, user, open);
    ASSERT_TRUE(unanswered.has_value()) << unanswered.error().message;
    EXPECT_THAT(*unanswered, EndsWith("<｜User｜>Hi"));
    const std::string started =
        R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello, y"}])";
    ChatPromptOptions continued;
    continued.continue_final_message = true;
    continued.add_generation_prompt = false;
    const auto begun = Render(built_in, started, continued);
    ASSERT_TRUE(begun.has_value()) << begun.error().message;
    EXPECT_THAT(*begun, EndsWith("</think>Hello, y"));
  }
}

// A call whose arguments are not an object is rendered with all of their text.
TEST(BuiltInTemplates, CallsWithBrokenArguments) {
  const std::string messages = R"([{"role": "user", "content": "Hi"}, {"role": "assistant",
      "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"a\": "}}]},
      {"role": "tool", "tool_call_id": "c", "content": "r"}])";
  for (const char* mode : {"deepseek_v32", "deepseek_v4"}) {
    EXPECT_THAT(Render(Compiled(mode), messages).value(),
                HasSubstr(R"(<｜DSML｜parameter name="arguments" string="true">{"a": </｜DSML｜)"))
        << mode;
  }
}

TEST(BuiltInTemplates, LongConversationsStayWithinTheLimits) {
  std::string messages = "[";
  for (int i = 0; i < 10'000; ++i)
    messages += R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )";
  messages += R"({"role": "user", "content": "c"}])";
  for (const char* mode : {"deepseek_v32", "deepseek_v4"}) {
    const auto prompt = Render(Compiled(mode), messages);
    ASSERT_TRUE(prompt.has_value()) << mode << ": " << prompt.error().message;
    EXPECT_GT(prompt->size(), size_t{200'000});
  }
}

TEST(BuiltInTemplates, RefusesMessagesWithoutAPlace) {
  const std::string result = R"([{"role": "user", "content": "Hi"}, {"role": "tool",
      "tool_call_id": "c", "content": "r"}])";
  EXPECT_THAT(Render(Compiled("deepseek_v32"), result).error().message,
              HasSubstr("a tool message needs an earlier assistant message with a tool call"));
  const std::string role = R"([{"role": "narrator", "content": "Hi"}])";
  EXPECT_EQ(Render(Compiled("deepseek_v32"), role).error().message, "Invalid role: narrator");
  EXPECT_EQ(Render(Compiled("deepseek_v4"), role).error().message, "Invalid role: narrator");
}

TEST(BuiltInTemplates, AreNamed) {
  EXPECT_EQ(BuiltInTemplate("auto"), "");
  EXPECT_EQ(BuiltInTemplateOf("DeepseekV4ForCausalLM"), "deepseek_v4");
  EXPECT_EQ(BuiltInTemplateOf("DeepseekV3ForCausalLM"), "");
}

}  // namespace
}  // namespace sluice
