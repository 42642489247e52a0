#include "parsers/minimax_m3_reader.h"

#include <string>

#include <gtest/gtest.h>

#include "parsers/answer_reading_testing.h"

namespace sluice {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;

constexpr char kTools[] = R"([{"function": {"name": "order", "parameters": {"properties": {
    "id": {"type": "integer"}, "note": {"type": "string"}, "urgent": {"type": ["boolean", "null"]},
    "lines": {"type": "array", "items": {"type": "object", "properties": {
        "sku": {"type": "string"}, "count": {"type": "integer"}}}},
    "address": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
        "zip": {"type": "string"}}, "additionalProperties": {"type": "number"}}]},
    "tags": {"items": {"type": "string"}}}}}}])";

// Returns `text` with the mark before each of its tags.
std::string Marked(std::string_view text) {
  std::string marked;
  for (const char c : text) {
    if (c == '<') marked += "]<]minimax[>[";
    marked += c;
  }
  return marked;
}

ReadParts ReadMinimax(const std::string& text) {
  std::mt19937 random(3);
  AnswerReaderOptions options = ParserOptions("minimax_m3", "minimax_m3");
  options.types =
      std::make_shared<const ToolTypes>(json::Parse(kTools).value(), /*keeps_schemas=*/true);
  const ReadParts whole = ReadInPieces(options, text, 0, random);
  for (const size_t most : {1, 5, 40}) {
    EXPECT_EQ(ReadInPieces(options, text, most, random), whole) << text;
  }
  return whole;
}

// Returns the arguments of one call of the tool.
std::string ArgumentsOf(std::string_view elements) {
  const ReadParts answer = ReadMinimax(Marked("<tool_call>\n<invoke name=\"order\">\n" +
                                              std::string(elements) + "</invoke>\n</tool_call>"));
  EXPECT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.content, "");
  return answer.calls.empty() ? "" : answer.calls[0].second;
}

TEST(MinimaxM3ReaderTest, ThoughtContentAndCalls) {
  const ReadParts answer = ReadMinimax(
      "<mm:think>Hm < 3.</mm:think>I order." +
      Marked(
          "<tool_call>\n<invoke name=\"order\">\n<id>42</id>\n<note>42 \"x\"</note></invoke>\n"
          "<invoke name='now'></invoke>\n<invoke name=find><what>7</what></invoke></tool_call>") +
      "Done.");
  EXPECT_EQ(answer.reasoning, "Hm < 3.");
  EXPECT_EQ(answer.content, "I order.");
  EXPECT_EQ(answer.calls, (Calls{{"order", R"({"id": 42, "note": "42 \"x\""})"},
                                 {"now", "{}"},
                                 {"find", R"({"what": "7"})"}}));
}

TEST(MinimaxM3ReaderTest, ElementsNestAsTheSchemaSays) {
  EXPECT_EQ(ArgumentsOf("<lines><item><sku>7</sku><count>2</count></item><item><sku>b</sku></item>"
                        "</lines><address><zip>0150</zip><floor>3</floor></address>"
                        "<tags><item>1</item></tags>"),
            R"({"lines": [{"sku": "7", "count": 2}, {"sku": "b"}], )"
            R"("address": {"zip": "0150", "floor": 3}, "tags": ["1"]})");
  EXPECT_EQ(ArgumentsOf("<lines></lines><address> </address><urgent>null</urgent>"),
            R"({"lines": [], "address": {}, "urgent": null})");
}

TEST(MinimaxM3ReaderTest, WhatTheSchemaDoesNotKnow) {
  // Repeated names become lists; text between elements gets a separate name.
  EXPECT_EQ(ArgumentsOf("<a>1</a><b>x</b><a>2</a>"), R"({"a": ["1", "2"], "b": "x"})");
  EXPECT_EQ(ArgumentsOf("<a>so <b>1</b></a>"), R"({"a": {"b": "1", "$text": "so "}})");
  EXPECT_EQ(ArgumentsOf("<tags><item>1</item>x</tags>"), R"({"tags": ["1", "x"]})");
}

TEST(MinimaxM3ReaderTest, WhatIsNotCompleteEndsTheArguments) {
  EXPECT_EQ(ArgumentsOf("<id>1</id><note>x</id>"), R"({"id": 1})");
  EXPECT_EQ(ReadMinimax(Marked("<tool_call><invoke name=\"order\"><id>1</id><note>x")).calls,
            (Calls{{"order", R"({"id": 1})"}}));
  EXPECT_EQ(ReadMinimax(Marked("<tool_call><invoke name=\"ord")).calls, Calls{});
  EXPECT_EQ(ReadMinimax("a <tool_call> b").content, "a <tool_call> b") << "without the mark";
  std::string deep;
  for (int i = 0; i < 2'000; ++i) deep += "<a>";
  EXPECT_EQ(ArgumentsOf("<id>1</id>" + deep), R"({"id": 1})");
}

}  // namespace
}  // namespace sluice
