#include "constraints/schema_keywords.h"

#include <string_view>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr const char* kAlways = "always";

constexpr SchemaKeyword kSchemaKeywords[] = {
    {"type", kAlways, "", R"({"type":["string","null"]})", ""},
    {"enum", "always; values that violate other keywords are removed",
     "numbers of more than 15 digits; strings together with `pattern` or `format`",
     R"({"enum":[1,2,"a"],"type":"integer","minimum":2})", R"({"enum":["ab","c"],"pattern":"^a"})"},
    {"const", "as `enum`", "as `enum`", R"({"const":{"a":[1]}})",
     R"({"const":12345678901234567890123})"},
    {"properties", "always, in the order of the schema",
     "in an object that may have other properties: a forbidden property (`false`), or a property "
     "whose name needs escapes",
     R"({"type":"object","properties":{"a":{"type":"integer"},"b":false}})",
     R"({"type":"object","properties":{"a":false},"additionalProperties":true})"},
    {"required", "always", "names together with `patternProperties`",
     R"({"type":"object","properties":{"a":{}},"required":["a"]})",
     R"({"type":"object","patternProperties":{"^a":{}},"required":["abc"]})"},
    {"additionalProperties",
     "always; if it is missing, `properties` and `patternProperties` allow no other properties", "",
     R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"null"}})", ""},
    {"patternProperties",
     "if no other properties are allowed; the pattern must match the whole name",
     "if other properties are allowed, or if a name could match two patterns",
     R"({"type":"object","patternProperties":{"^x-[a-z]+$":{"type":"integer"}}})",
     R"({"type":"object","patternProperties":{"^a":{},"b$":{"type":"null"}}})"},
    {"propertyNames",
     "without `properties`; with `properties` only in an object that allows no other properties",
     "with `properties` in an object that may have others; with `patternProperties`",
     R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$"}})",
     R"({"type":"object","properties":{"a":{}},"additionalProperties":true,"propertyNames":{"minLength":2}})"},
    {"minProperties", "0 and 1; any number in an object that has only `properties`",
     "2 or more, in an object that may have other properties",
     R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2})",
     R"({"type":"object","minProperties":2})"},
    {"maxProperties", kAlways, "", R"({"type":"object","maxProperties":2})", ""},
    {"dependentRequired", "in an object that has only `properties`",
     "in an object that may have other properties",
     R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}})",
     R"({"type":"object","dependentRequired":{"a":["b"]}})"},
    {"dependentSchemas", "as `dependentRequired`", "as `dependentRequired`",
     R"({"type":"object","properties":{"a":{},"b":{}},"dependentSchemas":{"a":{"required":["b"]}}})",
     R"({"type":"object","dependentSchemas":{"a":{"required":["b"]}}})"},
    {"unevaluatedProperties",
     "as `additionalProperties`; properties declared in an adjacent `$ref` or `allOf` are included",
     "together with `anyOf`, `oneOf`, `if` and `dependentSchemas`",
     R"({"type":"object","allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})",
     R"({"type":"object","anyOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})"},
    {"items",
     "always; if it is missing, any item is allowed, but none after `prefixItems`. A list of "
     "schemas, as before draft 2020-12, counts as `prefixItems`, and `additionalItems` then counts "
     "as `items`",
     "", R"({"type":"array","items":{"type":"integer"}})", ""},
    {"prefixItems", kAlways, "", R"({"type":"array","prefixItems":[{"type":"integer"},true]})", ""},
    {"minItems", kAlways, "", R"({"type":"array","items":{"type":"null"},"minItems":2})", ""},
    {"maxItems", kAlways, "", R"({"type":"array","items":{"type":"null"},"maxItems":2})", ""},
    {"uniqueItems",
     "if `items` allows only a few values (`enum`, booleans, small ranges of integers) with at "
     "most 2,000 arrangements",
     "otherwise", R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})",
     R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", true},
    {"contains", "", "always, also with `minContains` and `maxContains`", "",
     R"({"type":"array","contains":{"const":1}})", true},
    {"unevaluatedItems", "as `items`; items declared in an adjacent `$ref` or `allOf` are included",
     "together with `anyOf`, `oneOf`, `if` and `dependentSchemas`",
     R"({"type":"array","allOf":[{"prefixItems":[{}]}],"unevaluatedItems":false})",
     R"({"type":"array","anyOf":[{"prefixItems":[{}]}],"unevaluatedItems":false})"},
    {"minimum",
     "always; numbers between bounds have at most six digits after the decimal point and no "
     "exponent",
     "a bound of a number with more than six digits after the decimal point, a bound of an integer "
     "beyond 2^53",
     R"({"type":"number","minimum":0.5})", R"({"type":"number","minimum":0.00000001})"},
    {"maximum", "as `minimum`", "as `minimum`", R"({"type":"integer","maximum":99.5})",
     R"({"type":"integer","maximum":1e18})"},
    {"exclusiveMinimum", "as `minimum`", "as `minimum`",
     R"({"type":"integer","exclusiveMinimum":3})", R"({"type":"number","exclusiveMinimum":1e-9})"},
    {"exclusiveMaximum", "as `minimum`", "as `minimum`",
     R"({"type":"number","exclusiveMaximum":3})", R"({"type":"number","exclusiveMaximum":1e-9})"},
    {"multipleOf",
     "divisors up to 100 for integers; larger divisors between two bounds with at most 1,000 "
     "multiples",
     "fractions; larger divisors without two bounds",
     R"({"type":"integer","minimum":0,"maximum":100,"multipleOf":5})",
     R"({"type":"number","multipleOf":0.01})"},
    {"minLength",
     "always, but strings have no escapes if several branches of a union are strings; with a "
     "`pattern` only if the pattern is one repeated class, such as `^[a-z]+$`",
     "together with other patterns, or with `format`", R"({"type":"string","minLength":2})",
     R"({"type":"string","pattern":"^(ab)+$","minLength":3})"},
    {"maxLength", "as `minLength`", "as `minLength`",
     R"({"type":"string","pattern":"^[a-z]+$","maxLength":9})",
     R"({"type":"string","format":"email","maxLength":9})"},
    {"pattern",
     "always; the pattern must match the whole string, and the string must not contain characters "
     "that JSON escapes",
     "two patterns in `allOf`; together with `format`; patterns with quotes, control characters or "
     "classes of non-ASCII characters",
     R"({"type":"string","pattern":"^[a-z]{2}-\\d+$"})",
     R"({"type":"string","allOf":[{"pattern":"^a"},{"pattern":"b$"}]})"},
    {"format",
     "date, date-time, duration, email, hostname, ipv4, ipv6, json-pointer, relative-json-pointer, "
     "time, uri, uri-reference, uri-template, uuid. Dates are valid days, and times have no leap "
     "seconds; for the other formats, only the syntax is enforced",
     "other formats; two formats in `allOf`", R"({"type":"string","format":"uuid"})",
     R"({"type":"string","allOf":[{"format":"uri"},{"format":"email"}]})"},
    {"$ref", "to places in the schema itself (`#`, `#/...`)",
     "to other documents and to `$id`; a chain of references that leads back to itself",
     R"({"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"null"}}})",
     R"({"$ref":"https://example.com/schema"})"},
    {"$dynamicRef", "", kAlways, "", R"({"$dynamicRef":"#a"})"},
    {"allOf", "always, if its keywords can be combined", "",
     R"({"allOf":[{"type":"object","properties":{"a":{}}},{"required":["a"]}]})", ""},
    {"anyOf", "always, together with the adjacent keywords", "",
     R"({"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
     ""},
    {"oneOf", "if the branches exclude each other, or can be rewritten so that they do",
     "otherwise", R"({"oneOf":[{"type":"integer","minimum":5},{"type":"integer","maximum":7}]})",
     R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"b$"}]})"},
    {"not",
     "types, enumerations, bounds, sizes, `required`, `properties` and combinations of these, if "
     "the remaining values can be expressed as a schema",
     "`pattern`, `format`, `items`, `multipleOf` and other keywords in `not`",
     R"({"type":"integer","minimum":0,"not":{"enum":[3,5]}})",
     R"({"type":"string","not":{"pattern":"^a"}})"},
    {"if", "with `then` and `else`, if the schema of `if` would also be enforced under `not`",
     "otherwise",
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
      "# Keywords of JSON schemas\n\nGenerated by `sluice help --json-schema` from the table of "
      "keywords; `make docs` writes this page. If the constraint engine does not enforce a "
      "keyword, the server rewrites the schema with other keywords, if an equivalent schema "
      "exists. Otherwise the schema is refused with `strict: true`; the error names the keyword "
      "and its place. Without `strict`, the keyword is ignored, as in vLLM, and a warning is "
      "logged. Other keywords (`title`, `description`, `default`, `examples`, ...) do not affect "
      "answers. [json-schema-suite.md](json-schema-suite.md) has the results of the official test "
      "suite of JSON Schema.\n\nAs in vLLM, the following rules apply with and without `strict`. "
      "Answers contain properties in the order of the schema. Unless the schema allows more, an "
      "object with `properties` or `patternProperties` has no other properties, and a list with "
      "`prefixItems` has no other items. A schema with `properties` but without `type` describes "
      "an object; with `items`, it describes an array. A `pattern` must match the whole string. If "
      "other properties are allowed, the name of a declared property written with escapes "
      "(`\"\\u0061\"`) counts as another property. White space between the parts of an answer is "
      "at most 40 characters long.\n\n| keyword | enforced | not enforced | example that is not "
      "enforced |\n|---|---|---|---|\n";
  for (const SchemaKeyword& keyword : SchemaKeywords()) {
    const std::string_view refused = keyword.refused_example;
    text += fmt::format("| `{}` | {} | {}{} | {} |\n", keyword.name, keyword.enforced,
                        keyword.not_enforced,
                        keyword.is_always_refused ? "; refused even without `strict`" : "",
                        refused.empty() ? "" : Code(refused));
  }
  return text;
}

}  // namespace sluice
