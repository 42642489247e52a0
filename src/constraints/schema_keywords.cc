#include "constraints/schema_keywords.h"

#include <string_view>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr const char* kAlways = "always";

constexpr SchemaKeyword kSchemaKeywords[] = {
    {"type", kAlways, "", R"({"type":["string","null"]})", ""},
    {"enum", "always; only the values that meet what stands beside it",
     "numbers of more than 15 digits; strings beside `pattern` or `format`",
     R"({"enum":[1,2,"a"],"type":"integer","minimum":2})", R"({"enum":["ab","c"],"pattern":"^a"})"},
    {"const", "as `enum`", "as `enum`", R"({"const":{"a":[1]}})",
     R"({"const":12345678901234567890123})"},
    {"properties", "always, in the order in which they stand",
     "a property that must not be there (`false`), or whose name needs escapes, in an object that "
     "may hold others",
     R"({"type":"object","properties":{"a":{"type":"integer"},"b":false}})",
     R"({"type":"object","properties":{"a":false},"additionalProperties":true})"},
    {"required", "always", "names beside `patternProperties`",
     R"({"type":"object","properties":{"a":{}},"required":["a"]})",
     R"({"type":"object","patternProperties":{"^a":{}},"required":["abc"]})"},
    {"additionalProperties",
     "always; nothing else is allowed where it is missing beside `properties` or "
     "`patternProperties`",
     "", R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"null"}})", ""},
    {"patternProperties", "where nothing else is allowed; the whole name matches",
     "beside other properties that are allowed, or names that could match two of them",
     R"({"type":"object","patternProperties":{"^x-[a-z]+$":{"type":"integer"}}})",
     R"({"type":"object","patternProperties":{"^a":{},"b$":{"type":"null"}}})"},
    {"propertyNames", "alone, and of `properties` in an object that may hold nothing else",
     "beside `properties` in an object that may hold others, beside `patternProperties`",
     R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$"}})",
     R"({"type":"object","properties":{"a":{}},"additionalProperties":true,"propertyNames":{"minLength":2}})"},
    {"minProperties", "0 and 1; any number in an object that may hold nothing but `properties`",
     "from 2, in an object that may hold others",
     R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2})",
     R"({"type":"object","minProperties":2})"},
    {"maxProperties", kAlways, "", R"({"type":"object","maxProperties":2})", ""},
    {"dependentRequired", "in an object that may hold nothing but `properties`",
     "in an object that may hold others",
     R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}})",
     R"({"type":"object","dependentRequired":{"a":["b"]}})"},
    {"dependentSchemas", "as `dependentRequired`", "as `dependentRequired`",
     R"({"type":"object","properties":{"a":{},"b":{}},"dependentSchemas":{"a":{"required":["b"]}}})",
     R"({"type":"object","dependentSchemas":{"a":{"required":["b"]}}})"},
    {"unevaluatedProperties",
     "as `additionalProperties`, also over what `$ref` and `allOf` beside it name",
     "beside `anyOf`, `oneOf`, `if` and `dependentSchemas`",
     R"({"type":"object","allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})",
     R"({"type":"object","anyOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})"},
    {"items",
     "always; anything is allowed where it is missing, but after `prefixItems` nothing. A list of "
     "schemas, as before draft 2020-12, is `prefixItems`, and `additionalItems` then what `items` "
     "is after that",
     "", R"({"type":"array","items":{"type":"integer"}})", ""},
    {"prefixItems", kAlways, "", R"({"type":"array","prefixItems":[{"type":"integer"},true]})", ""},
    {"minItems", kAlways, "", R"({"type":"array","items":{"type":"null"},"minItems":2})", ""},
    {"maxItems", kAlways, "", R"({"type":"array","items":{"type":"null"},"maxItems":2})", ""},
    {"uniqueItems",
     "where `items` allows few values that are known beforehand (`enum`, booleans, small ranges of "
     "integers) with up to 2,000 arrangements",
     "all else", R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})",
     R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", true},
    {"contains", "", "with `minContains` and `maxContains`", "",
     R"({"type":"array","contains":{"const":1}})", true},
    {"unevaluatedItems", "as `items`, also over what `$ref` and `allOf` beside it name",
     "beside `anyOf`, `oneOf`, `if` and `dependentSchemas`",
     R"({"type":"array","allOf":[{"prefixItems":[{}]}],"unevaluatedItems":false})",
     R"({"type":"array","anyOf":[{"prefixItems":[{}]}],"unevaluatedItems":false})"},
    {"minimum",
     "always; numbers between bounds have at most six digits behind the point and no exponent",
     "a bound of a number with more than six digits behind the point, one of an integer beyond "
     "2^53",
     R"({"type":"number","minimum":0.5})", R"({"type":"number","minimum":0.00000001})"},
    {"maximum", "as `minimum`", "as `minimum`", R"({"type":"integer","maximum":99.5})",
     R"({"type":"integer","maximum":1e18})"},
    {"exclusiveMinimum", "as `minimum`", "as `minimum`",
     R"({"type":"integer","exclusiveMinimum":3})", R"({"type":"number","exclusiveMinimum":1e-9})"},
    {"exclusiveMaximum", "as `minimum`", "as `minimum`",
     R"({"type":"number","exclusiveMaximum":3})", R"({"type":"number","exclusiveMaximum":1e-9})"},
    {"multipleOf",
     "whole numbers up to 100, and any whole number between two bounds with up to 1,000 multiples",
     "fractions, large numbers without bounds, one bound alone",
     R"({"type":"integer","minimum":0,"maximum":100,"multipleOf":5})",
     R"({"type":"number","multipleOf":0.01})"},
    {"minLength",
     "always, but without escapes where several branches of a union hold strings; beside a "
     "`pattern` that is one repeated class, such as `^[a-z]+$`",
     "beside other patterns and `format`", R"({"type":"string","minLength":2})",
     R"({"type":"string","pattern":"^(ab)+$","minLength":3})"},
    {"maxLength", "as `minLength`", "as `minLength`",
     R"({"type":"string","pattern":"^[a-z]+$","maxLength":9})",
     R"({"type":"string","format":"email","maxLength":9})"},
    {"pattern",
     "always; the whole string matches, and holds no characters that JSON writes with escapes",
     "two of them in `allOf`, beside `format`, with quotes, control characters or classes of "
     "characters that are not ASCII",
     R"({"type":"string","pattern":"^[a-z]{2}-\\d+$"})",
     R"({"type":"string","allOf":[{"pattern":"^a"},{"pattern":"b$"}]})"},
    {"format",
     "date, date-time, duration, email, hostname, ipv4, ipv6, json-pointer, relative-json-pointer, "
     "time, uri, uri-reference, uri-template, uuid. Dates are days that there are, times have no "
     "leap seconds; of the others the form",
     "other formats, two of them in `allOf`", R"({"type":"string","format":"uuid"})",
     R"({"type":"string","allOf":[{"format":"uri"},{"format":"email"}]})"},
    {"$ref", "into the schema itself (`#`, `#/...`)",
     "to other documents and to `$id`; one that leads to itself by references alone",
     R"({"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"null"}}})",
     R"({"$ref":"https://example.com/schema"})"},
    {"$dynamicRef", "", kAlways, "", R"({"$dynamicRef":"#a"})"},
    {"allOf", "always, as far as the keywords in it can be combined", "",
     R"({"allOf":[{"type":"object","properties":{"a":{}}},{"required":["a"]}]})", ""},
    {"anyOf", "always, and with what stands beside it", "",
     R"({"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
     ""},
    {"oneOf", "where branches exclude each other, or can be made to", "where not",
     R"({"oneOf":[{"type":"integer","minimum":5},{"type":"integer","maximum":7}]})",
     R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"b$"}]})"},
    {"not",
     "types, enumerations, bounds, sizes, `required`, `properties` and what is made of them, where "
     "what is left can be said",
     "`pattern`, `format`, `items`, `multipleOf` and others in it",
     R"({"type":"integer","minimum":0,"not":{"enum":[3,5]}})",
     R"({"type":"string","not":{"pattern":"^a"}})"},
    {"if", "with `then` and `else`, where `not` could be said of it", "where not",
     R"({"type":"object","properties":{"kind":{"enum":["a","b"]},"size":{"type":"integer"}},"required":["kind"],"if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["size"]}})",
     R"({"type":"string","if":{"pattern":"^a"},"then":{"minLength":3}})"},
};

std::string Code(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return fmt::format("`{}`", cell);
}

}  // namespace

std::span<const SchemaKeyword> SchemaKeywords() {
  return kSchemaKeywords;
}

std::string SchemaKeywordsMarkdown() {
  std::string text =
      "# Keywords of JSON schemas\n\n"
      "Generated by `sluice help --json-schema` from the table of keywords; `make docs` writes "
      "this "
      "page. What the engine of constraints does not enforce is said in other words where that is "
      "exact. What cannot be is refused by name and place with `strict: true`; without, it is "
      "ignored as by vLLM, and the log says so. Other keywords (`title`, `description`, `default`, "
      "`examples`, ...) say nothing about an answer. What the official test suite of JSON Schema "
      "says of this is in [json-schema-suite.md](json-schema-suite.md).\n\n"
      "As in vLLM, whatever `strict` says: properties come in the order of the schema; an object "
      "with `properties` or `patternProperties` holds no others, and a list with `prefixItems` "
      "ends "
      "with them, where the schema does not say otherwise; a schema with `properties` or `items` "
      "and without `type` is an object or an array; a `pattern` matches the whole string. Where "
      "other properties are allowed, one whose name is a declared one written with escapes "
      "(`\"\\u0061\"`) is not taken for it. White space between the parts of an answer ends after "
      "40 "
      "characters in a row.\n\n"
      "| keyword | enforced | not enforced | example of what is not |\n|---|---|---|---|\n";
  for (const SchemaKeyword& keyword : SchemaKeywords()) {
    const std::string_view refused = keyword.refused_example;
    text += fmt::format("| `{}` | {} | {}{} | {} |\n", keyword.name, keyword.enforced,
                        keyword.not_enforced,
                        keyword.is_always_refused ? "; refused without `strict`, too" : "",
                        refused.empty() ? "" : Code(refused));
  }
  return text;
}

}  // namespace sluice
