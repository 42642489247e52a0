#include "server/api/context/unknown_fields.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string Told(UnknownFields& fields, const std::string& body) {
  return fields.Warn(*json::Parse(body));
}

TEST(UnknownFieldsTest, EachNameIsToldOnce) {
  UnknownFields fields;
  EXPECT_EQ(Told(fields, R"({"model":"m","prompt":"a","max_token":5,"tempreature":1})"),
            "The following fields were present in the request but ignored: {'max_token', "
            "'tempreature'}");
  EXPECT_EQ(Told(fields, R"({"max_token":5})"), "");
  EXPECT_THAT(Told(fields, R"({"max_token":5,"topp":1})"), ::testing::EndsWith("{'topp'}"));
}

TEST(UnknownFieldsTest, WhatIsReadIsKnown) {
  UnknownFields fields;
  EXPECT_EQ(Told(fields, R"({"messages":[],"tools":[],"temperature":0,"max_completion_tokens":1,
                            "guided_json":{},"structured_outputs":{},"response_format":{},
                            "use_beam_search":true,"cache_salt":"a","input":"a","prompt":"a",
                            "stream_options":{},"logit_bias":{},"priority":1})"),
            "");
  EXPECT_EQ(Told(fields, "[1]"), "");
}

TEST(UnknownFieldsTest, ManyNamesFillNeitherMemoryNorLog) {
  UnknownFields fields;
  for (size_t i = 0; i < UnknownFields::kMaxWarned; ++i)
    EXPECT_NE(Told(fields, fmt::format(R"({{"x{}":1}})", i)), "");
  EXPECT_EQ(Told(fields, R"({"another":1})"), "");
  UnknownFields long_names;
  EXPECT_LT(Told(long_names, "{\"" + std::string(100000, 'x') + "\":1}").size(), 300u);
}

}  // namespace
}  // namespace sluice
