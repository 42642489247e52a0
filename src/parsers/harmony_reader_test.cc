#include "parsers/harmony_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsers/answer_reading_testing.h"

namespace sluice {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;

// Returns the result of both parsers for `text`. Checks that it does not depend on how the text is
// cut into pieces.
ReadParts ReadHarmony(std::string_view text, std::string_view tools = "openai",
                      std::string_view reasoning = "openai_gptoss") {
  std::mt19937 random(3);
  const AnswerReaderOptions options = ParserOptions(tools, reasoning);
  const ReadParts whole = ReadInPieces(options, text, 0, random);
  for (const size_t most : {1, 4, 30}) {
    EXPECT_EQ(ReadInPieces(options, text, most, random), whole) << text;
  }
  return whole;
}

TEST(HarmonyReaderTest, ThoughtsCallsAndContent) {
  const ReadParts answer = ReadHarmony(
      "<|channel|>analysis<|message|>Two\ncities.<|end|>"
      "<|start|>assistant<|channel|>commentary<|message|>I look it up.<|end|>"
      "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
      R"({"city": "Oslo"}<|call|>)"
      "<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>"
      R"({"city": "Rome"}<|call|>)");
  EXPECT_EQ(answer.reasoning, "Two\ncities.");
  EXPECT_EQ(answer.content, "I look it up.");
  EXPECT_EQ(answer.calls,
            (Calls{{"weather", R"({"city": "Oslo"})"}, {"weather", R"({"city": "Rome"})"}}));
}

TEST(HarmonyReaderTest, MessagesOfOneKindAreLines) {
  const ReadParts answer = ReadHarmony(
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>"
      "<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
      "<|start|>assistant<|channel|>final<|message|>c<|return|>");
  EXPECT_EQ(answer.reasoning, "a\nb");
  EXPECT_EQ(answer.content, "c");
}

TEST(HarmonyReaderTest, MessagesOfOneKindAreToldApart) {
  AnswerReader reader(ParserOptions("openai", "openai_gptoss"));
  std::vector<std::string> texts;
  std::vector<bool> breaks;
  for (const ParserEvent& event : reader.Push(
           "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
           "<|end|><|start|>assistant<|channel|>commentary<|message|>c<|end|>"
           "<|start|>assistant<|channel|>final<|message|>d<|return|>")) {
    texts.push_back(event.text);
    breaks.push_back(event.is_break);
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("a", "\n", "b", "c", "\n", "d"));
  EXPECT_THAT(breaks, ::testing::ElementsAre(false, true, false, false, true, false));
}

TEST(HarmonyReaderTest, UnknownChannelsAreDropped) {
  const ReadParts answer = ReadHarmony(
      "<|channel|>remarks<|message|>Strange.<|end|><|start|>assistant<|channel|>final<|message|>Out"
      "<|return|>");
  EXPECT_EQ(answer.content, "Out");
  EXPECT_EQ(answer.reasoning, "");
}

TEST(HarmonyReaderTest, OtherRecipientsAndAuthorsAreDropped) {
  const ReadParts answer = ReadHarmony(
      "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
      "<|start|>functions.f to=assistant<|channel|>commentary<|message|>4<|end|>"
      "<|start|>assistant<|channel|>commentary to=browser.search<|message|>x<|call|>"
      "<|start|>assistant<|channel|>commentary to=lookup<|message|>{}<|call|>");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.reasoning, "print(1)")
      << "to a tool of the model's own, in the channel analysis";
  EXPECT_EQ(answer.calls, (Calls{{"lookup", "{}"}})) << "a tool without functions. is one, too";
}

TEST(HarmonyReaderTest, WhatNoParserWasNamedForIsDropped) {
  constexpr char kText[] =
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>ok";
  const ReadParts thoughts = ReadHarmony(kText, "", "openai_gptoss");
  EXPECT_EQ(thoughts.reasoning, "hm");
  EXPECT_EQ(thoughts.content, "ok");
  EXPECT_TRUE(thoughts.calls.empty());
  const ReadParts calls = ReadHarmony(kText, "openai", "");
  EXPECT_EQ(calls.reasoning, "");
  EXPECT_EQ(calls.calls.size(), 1u);
}

TEST(HarmonyReaderTest, AnAnswerThatIsCutStandsAsFarAsItGoes) {
  EXPECT_EQ(ReadHarmony("<|channel|>ana"), ReadParts{});
  EXPECT_EQ(ReadHarmony("<|channel|>analysis<|message|>I th").reasoning, "I th");
  EXPECT_EQ(
      ReadHarmony("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a").calls,
      (Calls{{"f", "{\"a"}}));
}

TEST(HarmonyReaderTest, TextWithoutAHeaderIsContent) {
  EXPECT_EQ(ReadHarmony(R"({"a": 1})").content, R"({"a": 1})");
  EXPECT_EQ(ReadHarmony("assistance<|end|>").content, "assistance");
  EXPECT_EQ(ReadHarmony("  to").content, "  to");
}

TEST(KimiK3ReaderTest, ChannelsAreUnwrapped) {
  std::mt19937 random(3);
  constexpr char kText[] =
      "Hm.<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|>"
      R"(<|open|>tools<|sep|><|open|>call tool="f&amp;&quot;" index="1"<|sep|>)"
      R"(<|open|>argument key="a" type="string"<|sep|>1 "x"<|close|>argument<|sep|>)"
      R"(<|open|>argument key="b" type="object"<|sep|>{"c": 2}<|close|>argument<|sep|>)"
      "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>";
  for (const size_t most : {0, 1, 9}) {
    const ReadParts answer = ReadInPieces(ParserOptions("kimi_k3", "kimi_k3"), kText, most, random);
    EXPECT_EQ(answer.reasoning, "Hm.");
    EXPECT_EQ(answer.content, "I look.");
    EXPECT_EQ(answer.calls, (Calls{{"f&\"", R"({"a": "1 \"x\"", "b": {"c": 2}})"}}));
  }
  constexpr char kAnswer[] = "<|open|>response<|sep|>Yes.<|close|>response<|sep|>";
  EXPECT_EQ(ReadInPieces(ParserOptions("", "kimi_k3"), kAnswer, 2, random).content, "Yes.");
  EXPECT_EQ(ReadInPieces(ParserOptions("kimi_k3"), kAnswer, 2, random).content, "Yes.");
}

TEST(DeepseekV4ReaderTest, BlocksUnderTheirNames) {
  std::mt19937 random(3);
  const auto call = [](const std::string& space, const std::string& block) {
    const std::string tag = "｜DSML｜" + space;
    return "a</think>b<｜DSML｜" + block + ">\n<" + tag + "invoke name=\"f\">\n<" + tag +
           "parameter name=\"x\" string=\"true\">1</" + tag + "parameter>\n<" + tag +
           "parameter name=\"y\" string=\"false\">[2]</" + tag + "parameter>\n</" + tag +
           "invoke>\n</｜DSML｜" + block + ">";
  };
  const auto check = [&](std::string_view parser, const std::string& text) {
    const ReadParts answer = ReadInPieces(ParserOptions(parser, parser), text, 6, random);
    EXPECT_EQ(answer.reasoning, "a");
    EXPECT_EQ(answer.content, "b");
    EXPECT_EQ(answer.calls, (Calls{{"f", R"({"x": "1", "y": [2]})"}})) << text;
  };
  for (const char* block : {"tool_calls", "toolcalls", "tool"})
    check("deepseek_v4", call("", block));
  check("deepseek_v41", call(" ", " calls"));
}

TEST(PlamoReaderTest, Requests) {
  std::mt19937 random(3);
  const ReadParts answer = ReadInPieces(
      ParserOptions("plamo3", "plamo3"),
      "<|plamo:begin_think:plamo|>a<|plamo:end_think:plamo|>b<|plamo:begin_tool_requests:plamo|>"
      "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:"
      "plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"x\": 1}"
      "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
      "<|plamo:end_tool_requests:plamo|>",
      7, random);
  EXPECT_EQ(answer.reasoning, "a");
  EXPECT_EQ(answer.content, "b");
  EXPECT_EQ(answer.calls, (Calls{{"f", R"({"x": 1})"}}));
}

}  // namespace
}  // namespace sluice
