#include "parsers/call_grammar.h"

#include <gtest/gtest.h>

#include "parsers/parser_table.h"

namespace sluice {
namespace {

std::vector<CallableTool> Tools() {
  return {{"f", json::Parse(R"({"type":"object"})").value()},
          {"g\"", json::Parse(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}})").value()}};
}

std::string TagOf(std::string_view parser, CallCount count, bool parallel) {
  return json::Write(CallTag(FindToolParser(parser)->grammar, Tools(), count, parallel));
}

constexpr char kHermesF[] =
    R"({"type":"tag","begin":"<tool_call>\n{\"name\": \"f\", \"arguments\": ",)"
    R"("content":{"type":"json_schema","json_schema":{"type":"object"}},"end":"}\n</tool_call>"})";

TEST(CallGrammarTest, CallsThatStandAlone) {
  EXPECT_EQ(TagOf("hermes", CallCount::kOne, true),
            std::string(R"({"type":"structural_tag","format":)") + kHermesF + "}");
  const std::string some = TagOf("hermes", CallCount::kAtLeastOne, false);
  EXPECT_TRUE(some.starts_with(
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<tool_call>"],)"))
      << some;
  EXPECT_NE(some.find(kHermesF), std::string::npos) << some;
  // A name inside a JSON string.
  EXPECT_NE(some.find(R"("begin":"<tool_call>\n{\"name\": \"g\\\"\", \"arguments\": ")"),
            std::string::npos)
      << some;
  EXPECT_TRUE(some.ends_with(R"("at_least_one":true,"stop_after_first":true}})")) << some;
  EXPECT_TRUE(TagOf("hermes", CallCount::kAny, true)
                  .ends_with(R"("at_least_one":false,"stop_after_first":false}})"));
}

TEST(CallGrammarTest, CallsInASection) {
  const std::string one = TagOf("kimi_k2", CallCount::kOne, true);
  EXPECT_EQ(
      one,
      R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
      R"({"type":"const_string","value":"<|tool_calls_section_begin|>"},)"
      R"({"type":"tag","begin":"<|tool_call_begin|>functions.f:","content":{"type":"sequence",)"
      R"("elements":[{"type":"regex","pattern":"\\d+"},)"
      R"({"type":"const_string","value":"<|tool_call_argument_begin|>"},)"
      R"({"type":"json_schema","json_schema":{"type":"object"}}]},"end":"<|tool_call_end|>"},)"
      R"({"type":"const_string","value":"<|tool_calls_section_end|>"}]}})");
  const std::string any = TagOf("minimax_m2", CallCount::kAny, true);
  EXPECT_NE(any.find(R"("triggers":["<minimax:tool_call>"],"tags":[{"type":"tag",)"
                     R"("begin":"<minimax:tool_call>\n","content":{"type":"tags_with_separator")"),
            std::string::npos)
      << any;
  EXPECT_NE(any.find(R"("style":"minimax_xml")"), std::string::npos) << any;
}

TEST(CallGrammarTest, MistralWritesCallsInTwoWays) {
  EXPECT_EQ(TagOf("mistral", CallCount::kOne, true),
            R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
            R"({"type":"const_string","value":"[TOOL_CALLS]["},)"
            R"({"type":"tag","begin":"{\"name\": \"f\", \"arguments\": ","content":)"
            R"({"type":"json_schema","json_schema":{"type":"object"}},"end":"}"},)"
            R"({"type":"const_string","value":"]"}]}})");
  const ToolParser& mistral = *FindToolParser("mistral");
  EXPECT_EQ(mistral.newer_token, "[ARGS]");
  EXPECT_EQ(json::Write(CallTag(mistral.newer_grammar, Tools(), CallCount::kOne, true)),
            R"({"type":"structural_tag","format":{"type":"tag","begin":"[TOOL_CALLS]f[ARGS]",)"
            R"("content":{"type":"json_schema","json_schema":{"type":"object"}},"end":""}})");
}

TEST(CallGrammarTest, AThoughtMayComeFirst) {
  const std::string some = TagOf("openai", CallCount::kAtLeastOne, true);
  EXPECT_NE(some.find(R"({"type":"optional","content":{"type":"tag",)"
                      R"("begin":"<|channel|>analysis<|message|>","content":{"type":"any_text"},)"
                      R"("end":"<|end|><|start|>assistant"}})"),
            std::string::npos)
      << some;
  EXPECT_EQ(TagOf("openai", CallCount::kAny, true).find("optional"), std::string::npos);
}

TEST(CallGrammarTest, AListOfCalls) {
  EXPECT_EQ(
      json::Write(CallListSchema(Tools(), /*parallel=*/false)),
      R"({"type":"array","minItems":1,"items":{"anyOf":[)"
      R"({"type":"object","properties":{"name":{"type":"string","enum":["f"]},)"
      R"("parameters":{"$ref":"#/$defs/tool0"}},"required":["name","parameters"]},)"
      R"({"type":"object","properties":{"name":{"type":"string","enum":["g\""]},)"
      R"("parameters":{"$ref":"#/$defs/tool1"}},"required":["name","parameters"]}]},)"
      R"("$defs":{"tool0":{"type":"object"},)"
      R"("tool1":{"$ref":"#/$defs/tool1/$defs/a","$defs":{"a":{"type":"object"}}}},"maxItems":1})");
}

}  // namespace
}  // namespace sluice
