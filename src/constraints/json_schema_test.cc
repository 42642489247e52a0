#include "constraints/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_THAT(ErrorOf(R"({"format":5})"), HasSubstr("`format` must be a string"));
  EXPECT_THAT(ErrorOf(R"({"items":[{"type":"strng"}]})"),
              HasSubstr("at #/items/0: `type` must be"));
  EXPECT_THAT(ErrorOf(R"({"items":[{}],"additionalItems":3})"),
              HasSubstr("at #/additionalItems: a schema must be"));
  EXPECT_THAT(ErrorOf(R"({"items":[{}],"prefixItems":[{}]})"),
              HasSubstr("`items` is a list although there is `prefixItems`"));
  EXPECT_THAT(ErrorOf(R"x({"pattern":"(?=a)"})x"),
              HasSubstr("`pattern`: the regex has look-around"));
  EXPECT_THAT(ErrorOf(R"({"minLength":5,"maxLength":2})"), HasSubstr("`minLength` is greater"));
  EXPECT_THAT(ErrorOf(R"({"minimum":9,"maximum":3})"), HasSubstr("`minimum` is greater"));
  EXPECT_THAT(ErrorOf(R"({"items":{"type":"string"},"uniqueItems":true})"),
              HasSubstr("at #: `uniqueItems`"));
  EXPECT_THAT(ErrorOf(R"({"dependentRequired":{"a":"b"}})"), HasSubstr("`dependentRequired`"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","enum":[1]})"), HasSubstr("no answer meets"));
  EXPECT_THAT(ErrorOf(R"({"contains":{}})"), HasSubstr("`contains`"));
}

TEST(JsonSchemaTest, ReferencesIntoTheSchemaMustLeadSomewhere) {
  EXPECT_EQ(ErrorOf(R"({"$defs":{"a/b":{}},"items":{"$ref":"#/$defs/a~1b"}})"), "");
  EXPECT_EQ(ErrorOf(R"({"items":{"$ref":"#"}})"), "");
  EXPECT_THAT(ErrorOf(R"({"$ref":"#/$defs/missing"})"), HasSubstr("leads nowhere"));
  // The target of a reference is checked, even in a place that usually holds no schema.
  EXPECT_THAT(ErrorOf(R"({"parts":{"a":{"enum":5}},"items":{"$ref":"#/parts/a"}})"),
              HasSubstr("at #/parts/a: `enum`"));
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

TEST(JsonSchemaTest, ReferencesMayNotLeadTooDeep) {
  std::string schema = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 5000; ++i)
    schema += fmt::format(R"("d{}":{{"items":{{"$ref":"#/$defs/d{}"}}}},)", i, i + 1);
  schema += R"("d5000":{}}})";
  EXPECT_THAT(ErrorOf(schema), HasSubstr("more than 200 deep"));
}

TEST(JsonSchemaTest, WhatCannotBeEnforcedIsNamedAndRefusedWhereStrict) {
  EXPECT_THAT(NotEnforced(R"({"type":"string","not":{"pattern":"a"}})"), ElementsAre("`not` at #"));
  EXPECT_THAT(NotEnforced(R"({"items":{"type":"string","if":{"format":"uri"},"then":{}}})"),
              ElementsAre("`if` at #/items"));
  EXPECT_THAT(NotEnforced(R"({"type":"number","multipleOf":0.5})"),
              ElementsAre("`multipleOf` at #"));
  EXPECT_THAT(NotEnforced(R"({"type":"string","pattern":"ab","maxLength":5})"),
              ElementsAre("`maxLength` at #"));
  EXPECT_THAT(NotEnforced(R"({"anyOf":[]})"), ElementsAre("`anyOf` at #"));
  EXPECT_THAT(NotEnforced(R"({"type":"null","oneOf":[]})"), ElementsAre("`oneOf` at #"));
  EXPECT_THAT(NotEnforced(R"({"items":{"type":"string","format":"color"}})"),
              ElementsAre("`format` at #/items"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","format":"color"})", true),
              HasSubstr("cannot be enforced: `format` at #"));
  EXPECT_THAT(ErrorOf(R"({"type":"string","not":{"pattern":"a"}})", true),
              HasSubstr("cannot be enforced: `not` at #"));
}

TEST(JsonSchemaTest, ReferencesThatLeadToThemselvesAreNoConstraint) {
  for (const char* schema :
       {R"({"$ref":"#"})", R"({"type":"object","properties":{"a":{"$ref":"#/properties/a"}}})",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
        R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"allOf":[{},{"$ref":"#/$defs/a"}]}}})"}) {
    EXPECT_EQ(ErrorOf(schema), "") << schema;
    EXPECT_THAT(ErrorOf(schema, true), HasSubstr("`$ref` at")) << schema;
  }
  // Recursive references through a property or an item describe lists and trees.
  EXPECT_EQ(ErrorOf(R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},)"
                    R"({"type":"null"}]}},"required":["next"],"additionalProperties":false})",
                    true),
            "");
  EXPECT_EQ(ErrorOf(R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],)"
                    R"("$defs":{"a":{"$ref":"#/$defs/b"},"b":{"type":"null"}}})",
                    true),
            "");
}

std::string Rewritten(std::string_view schema) {
  const auto checked = CheckJsonSchema(*json::Parse(schema), true);
  return checked ? json::Write(checked->schema) : checked.error().message;
}

TEST(JsonSchemaTest, PlainSchemasStayAsTheyAre) {
  for (
      const char* schema :
      {R"({"type":"object","properties":{"a":{"type":"string","maxLength":6}},"required":["a"],"additionalProperties":false})",
       R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":99},"minItems":2,"maxItems":4})",
       R"({"enum":["red","green","blue"]})", R"({"type":"string","pattern":"^a+$"})",
       R"({"anyOf":[{"type":"string"},{"type":"null"}]})", R"({"type":"object"})",
       R"({"type":"array"})"}) {
    EXPECT_EQ(Rewritten(schema), schema);
  }
}

TEST(JsonSchemaTest, TuplesOfOlderDraftsAreTuples) {
  EXPECT_EQ(Rewritten(R"({"type":"array","items":[{"type":"string"},{"type":"null"}]})"),
            Rewritten(R"({"type":"array","prefixItems":[{"type":"string"},{"type":"null"}]})"));
  EXPECT_EQ(Rewritten(R"({"items":[{"type":"string"}],"additionalItems":false,"minItems":1})"),
            R"({"type":"array","prefixItems":[{"type":"string"}],"items":false,"minItems":1})");
  EXPECT_EQ(Rewritten(R"({"items":[{"type":"string"}],"additionalItems":{"type":"null"}})"),
            R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"}})");
  // `additionalItems` has no meaning if `items` is a schema.
  EXPECT_EQ(Rewritten(R"({"items":{"type":"null"},"additionalItems":false})"),
            R"({"type":"array","items":{"type":"null"}})");
}

TEST(JsonSchemaTest, WhatCanBeSaidInOtherWordsIs) {
  EXPECT_EQ(Rewritten(R"({"allOf":[{"type":"integer","minimum":3},{"maximum":7.5}]})"),
            R"({"type":"integer","minimum":3,"maximum":7})");
  EXPECT_EQ(Rewritten(R"({"type":"integer","enum":[1,"a",2.0,2.5]})"), R"({"enum":[1,2]})");
  EXPECT_EQ(Rewritten(R"({"type":"integer","minimum":0,"maximum":4,"not":{"const":2}})"),
            R"({"anyOf":[{"type":"integer","minimum":0,"maximum":1},)"
            R"({"type":"integer","minimum":3,"maximum":4}]})");
  EXPECT_EQ(
      Rewritten(R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":2})"),
      R"({"enum":[[true,false],[false,true]]})");
  EXPECT_EQ(Rewritten(R"({"type":"string","pattern":"^\\d+$","maxLength":4})"),
            R"({"type":"string","pattern":"^\\d{1,4}$"})");
  EXPECT_EQ(
      Rewritten(
          R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}})"),
      R"({"anyOf":[{"type":"object","properties":{"b":{}},"additionalProperties":false},)"
      R"({"type":"object","properties":{"a":{},"b":{}},"required":["a","b"],"additionalProperties":false}]})");
  // Branches that differ in the value of a property.
  EXPECT_EQ(
      Rewritten(
          R"({"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]})"),
      R"({"anyOf":[{"type":"object","properties":{"k":{"enum":[1]}},"required":["k"],"additionalProperties":false},)"
      R"({"type":"object","properties":{"k":{"enum":[2]}},"required":["k"],"additionalProperties":false}]})");
}

TEST(JsonSchemaTest, ReferencesThatLeadBackAreKept) {
  EXPECT_EQ(
      Rewritten(R"({"type":"array","items":{"$ref":"#/$defs/o"},"$defs":{"o":{"type":"object"}}})"),
      R"({"type":"array","items":{"type":"object"},"$defs":{"s00002":{"type":"object"}}})");
  EXPECT_EQ(
      Rewritten(
          R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]})"),
      R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"],"additionalProperties":false})");
  EXPECT_EQ(
      Rewritten(
          R"({"allOf":[{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"},"maxItems":2}}})"),
      R"({"type":"array","items":{"$ref":"#/$defs/s00002"},"maxItems":2,"$defs":{"s00002":{"type":"array","items":{"$ref":"#/$defs/s00002"},"maxItems":2}}})");
}

}  // namespace
}  // namespace sluice
