#include "constraints/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ErrorOf(std::string_view schema, bool strict = false) {
  const auto checked = CheckJsonSchema(*json::Parse(schema), strict);
  return checked ? std::string() : checked.error().message;
}

std::vector<std::string> NotEnforced(std::string_view schema) {
  return CheckJsonSchema(*json::Parse(schema), false)->not_enforced;
}

TEST(JsonSchemaTest, WrongSchemasAreRefusedWithTheirPlace) {
  EXPECT_THAT(ErrorOf(R"({"properties":{"a":{"type":"strng"}}})"),
              HasSubstr("at #/properties/a: `type` must be"));
  EXPECT_THAT(ErrorOf(R"({"required":"a"})"), HasSubstr("at #: `required` must be a list"));
  EXPECT_THAT(ErrorOf(R"({"items":{"minLength":-1}})"), HasSubstr("at #/items: `minLength`"));
  EXPECT_THAT(ErrorOf(R"({"anyOf":[{},5]})"), HasSubstr("at #/anyOf/1: a schema must be"));
  EXPECT_THAT(ErrorOf(R"({"enum":[]})"), HasSubstr("`enum`"));
  EXPECT_THAT(ErrorOf(R"({"format":"color"})"), HasSubstr("`format` \"color\" is not known"));
  EXPECT_THAT(ErrorOf(R"x({"pattern":"(?=a)"})x"),
              HasSubstr("`pattern`: the regex has look-around"));
  EXPECT_THAT(ErrorOf(R"({"minLength":5,"maxLength":2})"), HasSubstr("`minLength` is greater"));
  EXPECT_THAT(ErrorOf(R"({"minimum":9,"maximum":3})"), HasSubstr("`minimum` is greater"));
  EXPECT_THAT(ErrorOf(R"({"uniqueItems":true})"), HasSubstr("`uniqueItems`"));
  EXPECT_THAT(ErrorOf(R"({"contains":{}})"), HasSubstr("`contains`"));
}

TEST(JsonSchemaTest, ReferencesIntoTheSchemaMustLeadSomewhere) {
  EXPECT_EQ(ErrorOf(R"({"$defs":{"a/b":{}},"items":{"$ref":"#/$defs/a~1b"}})"), "");
  EXPECT_EQ(ErrorOf(R"({"items":{"$ref":"#"}})"), "");
  EXPECT_THAT(ErrorOf(R"({"$ref":"#/$defs/missing"})"), HasSubstr("leads nowhere"));
}

TEST(JsonSchemaTest, SchemasMayBe64DeepInsideEachOther) {
  const auto nested = [](int depth) {
    std::string schema = "{}";
    for (int i = 1; i < depth; ++i) schema.insert(0, "{\"items\":").append("}");
    return schema;
  };
  EXPECT_EQ(ErrorOf(nested(64)), "");
  EXPECT_THAT(ErrorOf(nested(65)), HasSubstr("64 deep"));
}

TEST(JsonSchemaTest, WhatTheEngineIgnoresIsNamedAndRefusedWhereStrict) {
  EXPECT_THAT(NotEnforced(R"({"not":{"type":"null"}})"), ElementsAre("`not` at #"));
  EXPECT_THAT(NotEnforced(R"({"items":{"if":{},"then":{}}})"),
              ElementsAre("`if` at #/items", "`then` at #/items"));
  EXPECT_THAT(NotEnforced(R"({"allOf":[{"type":"object"},{"required":["a"]}]})"),
              ElementsAre("`allOf` at #"));
  EXPECT_THAT(NotEnforced(R"({"allOf":[{"type":"object"}]})"), IsEmpty());
  EXPECT_THAT(NotEnforced(R"({"type":"number","multipleOf":0.5})"),
              ElementsAre("`multipleOf` at #"));
  EXPECT_THAT(NotEnforced(R"({"type":"integer","multipleOf":5})"), IsEmpty());
  EXPECT_THAT(NotEnforced(R"({"pattern":"a","maxLength":5})"), ElementsAre("`maxLength` at #"));
  EXPECT_THAT(NotEnforced(R"({"enum":[1],"minimum":0})"),
              ElementsAre("`minimum beside enum` at #"));
  EXPECT_THAT(ErrorOf(R"({"not":{}})", true), HasSubstr("cannot be: `not` at #"));
}

}  // namespace
}  // namespace sluice
