#include "bench/stream_chunk.h"

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

StreamChunk Scan(std::string_view json) {
  StreamChunk chunk;
  EXPECT_TRUE(ScanChunk(json, chunk)) << json;
  return chunk;
}

TEST(StreamChunk, Completion) {
  const StreamChunk chunk = Scan(
      R"({"id":"cmpl-1","choices":[{"index":0,"text":" a\"\n","logprobs":{"text":"no"}},{"text":"b"}],"usage":null})");
  EXPECT_TRUE(chunk.has_choices);
  EXPECT_EQ(chunk.text, " a\"\n");
  EXPECT_FALSE(chunk.has_usage);
}

TEST(StreamChunk, Chat) {
  EXPECT_EQ(Scan(R"({"choices": [ {"delta": {"role": "assistant", "content": "x"}} ]})").text, "x");
  const StreamChunk empty = Scan(R"({"choices":[{"delta":{"content":null}}]})");
  EXPECT_TRUE(empty.has_choices);
  EXPECT_EQ(empty.text, "");
  EXPECT_EQ(Scan(R"({"choices":[{"message":{"content":"whole"}}]})").text, "whole");
}

TEST(StreamChunk, Usage) {
  const StreamChunk chunk = Scan(
      R"({"choices":[],"usage":{"prompt_tokens":5,"details":{"completion_tokens":1},"completion_tokens":9}})");
  EXPECT_FALSE(chunk.has_choices);
  EXPECT_EQ(chunk.prompt_tokens, 5);
  EXPECT_EQ(chunk.completion_tokens, 9);
}

TEST(StreamChunk, CountsThatAreNoIntegers) {
  const StreamChunk chunk =
      Scan(R"({"usage":{"prompt_tokens":5.0,"completion_tokens":1e2},"choices":[{"text":"a"}]})");
  EXPECT_TRUE(chunk.has_usage);
  EXPECT_EQ(chunk.prompt_tokens, std::nullopt);
  EXPECT_EQ(chunk.completion_tokens, std::nullopt);
  EXPECT_EQ(chunk.text, "a");
}

TEST(StreamChunk, Error) {
  EXPECT_TRUE(Scan(R"({"error": {"message": "no", "code": 500}})").has_error);
  EXPECT_TRUE(Scan(R"({"error": "no"})").has_error);
  EXPECT_FALSE(Scan(R"({"error":null})").has_error);
}

TEST(StreamChunk, NoObject) {
  StreamChunk chunk;
  for (const char* text :
       {"", "[1]", "{", R"({"choices":)", R"({"choices":[{"text":"x)", "{\"a\" 1}"})
    EXPECT_FALSE(ScanChunk(text, chunk)) << text;
  EXPECT_FALSE(ScanChunk(std::string(10000, '[') + std::string(10000, ']'), chunk));
  EXPECT_FALSE(
      ScanChunk("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}", chunk));
}

TEST(StreamChunk, UnescapesEveryForm) {
  EXPECT_EQ(Scan(R"({"choices":[{"text":"\u00e9\ud83d\ude00\\\/\t"}]})").text,
            "\u00e9\U0001F600\\/\t");
}

}  // namespace
}  // namespace sluice::bench
