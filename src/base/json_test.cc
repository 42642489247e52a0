#include "base/json.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/json_ascii.h"
#include "base/json_count.h"
#include "base/json_lines.h"

namespace sluice::json {
namespace {

std::string RoundTrip(std::string_view text) {
  auto value = Parse(text);
  return value ? Write(*value) : "error: " + value.error().message;
}

TEST(Json, RoundTripsValues) {
  for (const char* text :
       {"null", "true", "[]", "{}", "[1,-2,3.5]", R"({"a":{"b":[null,"x\"y\n"]}})", "\"é😀\"", "0",
        "18446744073709551616", "[[[]]]", "1e-05", "1e+16", "123456789012345.0"}) {
    EXPECT_EQ(RoundTrip(text), text);
  }
}

// Long strings are unescaped directly into the resulting value.
TEST(Json, RoundTripsLongStrings) {
  const std::string body(10000, 'a');
  for (const std::string& text :
       {"[\"" + body + "\"]", "[\"" + body + "\\n\\\"\"  ,1]", "{\"k\":\"\\t" + body + "\"}",
        "\"" + body + "\"", "[\"" + std::string(4093, 'b') + "\"]"}) {
    std::string compact = text;
    std::erase(compact, ' ');
    EXPECT_EQ(RoundTrip(text), compact);
  }
  std::string escaped, plain;
  for (int i = 0; i < 3000; ++i) escaped += "\\u0041", plain += "A";
  EXPECT_EQ(Parse("[\"" + escaped + "\"]")->as_array()[0].as_string(), plain);
  EXPECT_EQ(Parse("[\"" + body + "\\ud800\"]").error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(Parse("[\"" + body));
}

TEST(Json, TheMemoryOfAParseIsKnownBefore) {
  std::string values = "[1", members = "{\"k0\":1";
  for (int i = 1; i < 1000; ++i) {
    values += ",1";
    members += ",\"k" + std::to_string(i) + "\":1";
  }
  values += "]";
  members += "}";
  const auto memory = [](const std::string& text) {
    return ParseMemory(Measure(text), text.size());
  };
  EXPECT_GE(memory(values), 1000 * sizeof(Value) + values.size());
  EXPECT_GE(memory(members), 1000 * sizeof(Value::Member) + members.size());
  EXPECT_LE(memory("[\"" + std::string(1000000, 'x') + "\"]"), 8000000u);
}

TEST(Json, KeepsKeyOrderAndLastDuplicate) {
  EXPECT_EQ(RoundTrip(R"({"b":1,"a":2,"b":3})"), R"({"b":3,"a":2})");
  EXPECT_FALSE(Parse(R"({"b":1,"b":3})", {.allow_duplicates = false}));
}

TEST(Json, FindsDuplicatesInLargeObjects) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i)
    text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text += "\"k500\":-1}";
  const auto value = Parse(text);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->as_object().size(), 1000u);
  EXPECT_EQ(value->Find("k500")->as_integer(), -1);
  EXPECT_FALSE(Parse(text, {.allow_duplicates = false}));
}

TEST(Json, RefusesMalformedText) {
  for (const char* text :
       {"", "{", "[1,]", "01", "1.", "-", "nul", "NaN", "[1] 2", "{\"a\" 1}", "\"\x80\"", "'a'",
        "1 2", "{\"a\":1}}", "[1}", "tru", "\"\n\"", "1e999"}) {
    EXPECT_FALSE(Parse(text)) << text;
  }
}

TEST(Json, NamesLineAndColumnOfWhatIsWrong) {
  const auto expect = [](const char* text, const char* place) {
    const std::string message = Parse(text).error().message;
    EXPECT_TRUE(message.ends_with(std::string(" (") + place + ")")) << message;
  };
  expect("{\n \"a\": 1,\n \"b\": NaN\n}", "line 3, column 7");
  expect("{\n \"a\": 1\n \"b\": 2\n}", "line 3, column 2");
  expect("[\n1,\n\n01]", "line 4, column 1");
  expect("{\"a\": NaN}", "line 1, column 7");
  expect("{\"\u00E4\": NaN}", "line 1, column 7");
  expect("{\n \"a\": [1,\n", "line 3, column 1");
  expect("[1]\n 2", "line 2, column 2");
  expect("nul", "line 1, column 1");
}

TEST(Json, NamesAByteOrderMark) {
  EXPECT_NE(Parse("\xEF\xBB\xBF{}").error().message.find("byte order mark"), std::string::npos);
}

TEST(Json, LimitsDepth) {
  const std::string deep = std::string(100000, '[');
  EXPECT_FALSE(Parse(deep));
  EXPECT_FALSE(Parse(std::string(200, '[') + std::string(200, ']')));
  EXPECT_TRUE(Parse(std::string(100, '[') + std::string(100, ']')));
}

TEST(Json, WritesStringsInAscii) {
  std::string out = "x";
  AppendAsciiString(out, "a\"\n~\x7F\u00E9\u2028\U0001F600\xFF");
  EXPECT_EQ(out, R"(x"a\"\n~\u007f\u00e9\u2028\ud83d\ude00\ufffd")");
}

TEST(Json, ReplacesInvalidUtf8WhenWriting) {
  EXPECT_EQ(Write(Value("a\xff\xc3")), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(Json, WritesWhatJsonLacksAsNull) {
  EXPECT_EQ(Write(Value(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(Write(Value(std::numeric_limits<double>::quiet_NaN())), "null");
}

TEST(Json, ComparesLikePython) {
  EXPECT_EQ(Value(1), Value(1.0));
  EXPECT_EQ(Value(true), Value(1));
  EXPECT_EQ(*Parse(R"({"a":1,"b":2})"), *Parse(R"({"b":2,"a":1})"));
  EXPECT_FALSE(Value("1") == Value(1));
}

TEST(JsonLines, GivesEveryLineItsNumberAndNamesTheOneThatIsWrong) {
  const auto read = [](std::string_view text, const ParseLimits& limits = {}) {
    std::string seen;
    const Status status =
        ForEachLine(text, "a.jsonl", limits, [&](const Value& value, int64_t line) -> Status {
          if (value.is_null()) return Fail(ErrorCode::kInvalidData, "no null");
          seen += std::to_string(line) + "=" + Write(value) + " ";
          return {};
        });
    return seen + (status ? "end" : status.error().message);
  };
  EXPECT_EQ(read("1\n \t\r\n\n[2]\r\n\"c\""), "1=1 4=[2] 5=\"c\" end");
  EXPECT_EQ(read(""), "end");
  EXPECT_EQ(read("{}\nnull\n3"), "1={} a.jsonl:2: no null");
  EXPECT_EQ(read("\n[1 2]").find("a.jsonl:2: invalid JSON"), 0u);
  EXPECT_TRUE(read("\n[1 2]").ends_with(" (column 4)")) << read("\n[1 2]");
  EXPECT_EQ(read("[1,2]", {.max_bytes = 4}).find("a.jsonl:1: JSON text of 5 bytes"), 0u);
}

}  // namespace
}  // namespace sluice::json
