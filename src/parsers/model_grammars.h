// Grammars for constrained calls in the formats of tool_parsers.cc. The text between a format's
// marks is the same as in the models' chat templates.
#pragma once

#include "parsers/call_grammar.h"

namespace sluice {

inline constexpr CallGrammar kHermesGrammar = {.trigger = "<tool_call>",
                                               .begin = "<tool_call>\n{\"name\": \"",
                                               .arguments = "\", \"arguments\": ",
                                               .end = "}\n</tool_call>"};
inline constexpr CallGrammar kLlamaGrammar = {.trigger = R"({"name": )",
                                              .begin = R"({"name": ")",
                                              .arguments = R"(", "parameters": )",
                                              .end = "}"};
inline constexpr CallGrammar kQwenCoderGrammar = {.trigger = "<tool_call>\n<function=",
                                                  .begin = "<tool_call>\n<function=",
                                                  .arguments = ">\n",
                                                  .end = "\n</function>\n</tool_call>",
                                                  .style = "qwen_xml"};
inline constexpr CallGrammar kMistralListGrammar = {.trigger = "[TOOL_CALLS]",
                                                    .begin = R"({"name": ")",
                                                    .arguments = R"(", "arguments": )",
                                                    .end = "}",
                                                    .section_begin = "[TOOL_CALLS][",
                                                    .section_end = "]",
                                                    .separator = ", "};
inline constexpr CallGrammar kMistralGrammar = {
    .trigger = "[TOOL_CALLS]", .begin = "[TOOL_CALLS]", .arguments = "[ARGS]"};
inline constexpr CallGrammar kDeepseekV3Grammar = {
    .trigger = "<｜tool▁calls▁begin｜>",
    .begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    .arguments = "\n```json\n",
    .end = "\n```<｜tool▁call▁end｜>",
    .section_begin = "<｜tool▁calls▁begin｜>",
    .section_end = "<｜tool▁calls▁end｜>",
    .separator = "\n"};
inline constexpr CallGrammar kDeepseekV31Grammar = {.trigger = "<｜tool▁calls▁begin｜>",
                                                    .begin = "<｜tool▁call▁begin｜>",
                                                    .arguments = "<｜tool▁sep｜>",
                                                    .end = "<｜tool▁call▁end｜>",
                                                    .section_begin = "<｜tool▁calls▁begin｜>",
                                                    .section_end = "<｜tool▁calls▁end｜>"};
inline constexpr CallGrammar kDeepseekV32Grammar = {.trigger = "<｜DSML｜function_calls>",
                                                    .begin = "<｜DSML｜invoke name=\"",
                                                    .arguments = "\">\n",
                                                    .end = "</｜DSML｜invoke>\n",
                                                    .section_begin = "<｜DSML｜function_calls>\n",
                                                    .section_end = "</｜DSML｜function_calls>",
                                                    .opening = "\n\n",
                                                    .style = "deepseek_xml"};
inline constexpr CallGrammar kMinimaxGrammar = {.trigger = "<minimax:tool_call>",
                                                .begin = "<invoke name=\"",
                                                .arguments = "\">\n",
                                                .end = "</invoke>\n",
                                                .section_begin = "<minimax:tool_call>\n",
                                                .section_end = "</minimax:tool_call>",
                                                .opening = "\n",
                                                .style = "minimax_xml"};
inline constexpr CallGrammar kGlmGrammar = {.trigger = "<tool_call>",
                                            .begin = "<tool_call>",
                                            .end = "</tool_call>",
                                            .style = "glm_xml",
                                            .constrains_auto = true};
inline constexpr CallGrammar kKimiGrammar = {.trigger = "<|tool_calls_section_begin|>",
                                             .begin = "<|tool_call_begin|>functions.",
                                             .end = "<|tool_call_end|>",
                                             .section_begin = "<|tool_calls_section_begin|>",
                                             .section_end = "<|tool_calls_section_end|>",
                                             .number_end = "<|tool_call_argument_begin|>"};

inline constexpr CallGrammar kLongcatGrammar = {.trigger = "<longcat_tool_call>",
                                                .begin = "<longcat_tool_call>\n{\"name\": \"",
                                                .arguments = "\", \"arguments\": ",
                                                .end = "}\n</longcat_tool_call>"};
inline constexpr CallGrammar kMimoGrammar = {.trigger = "<tool_call>",
                                             .begin = "<tool_call><function=",
                                             .arguments = ">",
                                             .end = "</function></tool_call>",
                                             .style = "qwen_xml"};
inline constexpr CallGrammar kDeepseekV4Grammar = {.trigger = "<｜DSML｜tool_calls>",
                                                   .begin = "<｜DSML｜invoke name=\"",
                                                   .arguments = "\">\n",
                                                   .end = "</｜DSML｜invoke>\n",
                                                   .section_begin = "<｜DSML｜tool_calls>\n",
                                                   .section_end = "</｜DSML｜tool_calls>",
                                                   .opening = "\n\n",
                                                   .style = "deepseek_xml"};
inline constexpr CallGrammar kDeepseekV41Grammar = {.trigger = "<｜DSML｜ calls>",
                                                    .begin = "<｜DSML｜ invoke name=\"",
                                                    .arguments = "\">\n",
                                                    .end = "</｜DSML｜ invoke>\n",
                                                    .section_begin = "<｜DSML｜ calls>\n",
                                                    .section_end = "</｜DSML｜ calls>",
                                                    .opening = "\n\n",
                                                    .style = "deepseek_v4_1_xml"};
inline constexpr CallGrammar kPlamoGrammar = {
    .trigger = "<|plamo:begin_tool_requests:plamo|>",
    .begin = "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
    .arguments =
        "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
        "<|plamo:constrain|>json<|plamo:msg|>",
    .end = "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    .section_begin = "<|plamo:begin_tool_requests:plamo|>",
    .section_end = "<|plamo:end_tool_requests:plamo|>"};
// The mark that ends a call also ends the answer, so the call's text does not include the mark.
inline constexpr CallGrammar kHarmonyGrammar = {.trigger = "<|channel|>commentary to=functions.",
                                                .begin = "<|channel|>commentary to=functions.",
                                                .arguments = " <|constrain|>json<|message|>",
                                                .thought_begin = "<|channel|>analysis<|message|>",
                                                .thought_end = "<|end|><|start|>assistant"};

}  // namespace sluice
