#include "server/door/model_field.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice {
namespace {

TEST(ModelField, IsFoundAtTheTopAlone) {
  EXPECT_EQ(FindModelField(R"({"model":"a"})"), "a");
  EXPECT_EQ(
      FindModelField("\xEF\xBB\xBF { \"n\" : [1, {\"model\": \"x\"}] ,\n \"model\" : \"a\" }"),
      "a");
  EXPECT_EQ(FindModelField(R"({"messages":[{"model":"b"}],"x":{"model":"c"}})"), std::nullopt);
  EXPECT_EQ(FindModelField(R"({"s":"{\"model\":\"b\"}","model":"a/b"})"), "a/b");
  EXPECT_EQ(FindModelField(R"({"s":"\\","model":"a"})"), "a");
  EXPECT_EQ(FindModelField(R"({"model":""})"), "");
}

TEST(ModelField, EscapesAreRead) {
  EXPECT_EQ(FindModelField(R"({"\u006dodel":"\u00e4\n"})"), "ä\n");
}

TEST(ModelField, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(FindModelField(R"({"model":"a","model":"b"})"), "b");
  EXPECT_EQ(FindModelField(R"({"model":"a","model":1})"), std::nullopt);
  EXPECT_EQ(FindModelField(R"({"model":null,"model":"b"})"), "b");
}

TEST(ModelField, WhatIsNoObjectHasNone) {
  for (const char* text : {"", " ", "[]", "null", "\"model\"", "{", "{\"model\"",
                           "{\"model\":", "{\"model\":\"a", "{\"model\":\"a\"", "{\"model\":\"a\",",
                           "{}", "{\"a\":}", "{\"a\" \"b\"}", "{\"a\":[", "{\"a\":\"\\"}) {
    EXPECT_EQ(FindModelField(text), std::nullopt) << text;
  }
}

// FindModelField agrees with the parser on every text that the parser accepts.
TEST(ModelField, AgreesWithTheParser) {
  std::mt19937 random(7);
  const std::string pieces[] = {"{", "}",         "[",     "]",        ",",
                                ":", "\"model\"", "\"a\"", "\"\\\"\"", "\"m\\u006fdel\"",
                                "1", "null",      " ",     "\"}\""};
  int num_objects = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = "{";
    const auto length = random() % 9;
    for (size_t i = 0; i < length; ++i) text += pieces[random() % std::size(pieces)];
    text += "}";
    const auto parsed = json::Parse(text);
    if (!parsed || !parsed->is_object()) {
      FindModelField(text);
      continue;
    }
    ++num_objects;
    const json::Value* const model = parsed->Find("model");
    const std::optional<std::string> expected =
        model != nullptr && model->is_string() ? std::optional(model->as_string()) : std::nullopt;
    ASSERT_EQ(FindModelField(text), expected) << text;
  }
  EXPECT_GT(num_objects, 100);
}

}  // namespace
}  // namespace sluice
