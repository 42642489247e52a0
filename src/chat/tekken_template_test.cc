// Compares the chat templates of tekken.json's versions with what mistral-common rendered
// (tools/tokenizers/make_tekken_cases.py).
#include "tokenizer/tekken_template.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"
#include "chat/chat_prompt.h"
#include "chat/chat_template.h"

namespace sluice {
namespace {

TEST(TekkenTemplateTest, RendersAsMistralCommon) {
  const json::Value recorded =
      json::Parse(ReadFile(SourcePath("tests/data/tokenizers/tekken.json")).value()).value();
  int count = 0;
  for (const json::Value& row : recorded.Find("chats")->as_array()) {
    const std::string version = row.Find("version")->as_string();
    const std::string title = version + " / " + row.Find("name")->as_string();
    const auto compiled = ChatTemplate::Compile(
        TekkenTemplate(version, version == "v15" ? "none" : ""), "tekken.json");
    ASSERT_TRUE(compiled) << compiled.error().message;
    const json::Value& request = *row.Find("request");
    const auto messages = NormalizeMessages(*request.Find("messages"), compiled->content_format());
    ASSERT_TRUE(messages) << messages.error().message;
    json::Value variables{json::Value::Object{}};
    variables.Set("messages", *messages);
    variables.Set("bos_token", "<s>");
    variables.Set("eos_token", "</s>");
    const json::Value* tools = request.Find("tools");
    variables.Set("tools", tools == nullptr ? json::Value() : *tools);
    if (const json::Value* effort = request.Find("reasoning_effort"))
      variables.Set("reasoning_effort", *effort);
    const auto text = compiled->Render(variables);
    ASSERT_TRUE(text) << title << ": " << text.error().message;
    EXPECT_EQ(*text, row.Find("text")->as_string()) << title;
    ++count;
  }
  EXPECT_EQ(count, 31);
}

TEST(TekkenTemplateTest, RendersThoughtsAndRefusesImages) {
  const auto compiled = ChatTemplate::Compile(TekkenTemplate("v13", ""));
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto render = [&](const char* messages) {
    json::Value variables{json::Value::Object{}};
    variables.Set("messages", json::Parse(messages).value());
    variables.Set("bos_token", "<s>");
    variables.Set("eos_token", "</s>");
    const auto text = compiled->Render(variables);
    return text ? *text : text.error().message;
  };
  EXPECT_EQ(render(R"([{"role": "user", "content": "a"},
                       {"role": "assistant", "reasoning_content": "why", "content": "b"},
                       {"role": "user", "content": [{"type": "text", "text": "c"}]}])"),
            "<s>[INST]a[/INST][THINK]why[/THINK]b</s>[INST]c[/INST]");
  EXPECT_EQ(render(R"([{"role": "user", "content": [{"type": "image"}]}])"),
            "Only text is rendered here, found a part of type image");
  EXPECT_EQ(TekkenTemplate("v8", ""), "");
  EXPECT_EQ(TekkenTemplate("", ""), "");
}

}  // namespace
}  // namespace sluice
