#include <array>

#include "parsers/parser_table.h"

namespace sluice {

const ToolParser* SuggestToolParser(std::string_view chat_template) {
  // The first mark in this table that occurs in the template decides, so a mark that contains
  // another is listed before it.
  static constexpr std::array<std::array<std::string_view, 2>, 26> kMarks = {{
      {"<function=", "qwen3_coder"},
      {"<arg_key>", "glm45"},
      {"]<]minimax[>[", "minimax_m3"},
      {"<minimax:tool_call>", "minimax_m2"},
      {"<seed:tool_call>", "seed_oss"},
      {"<longcat_tool_call>", "longcat"},
      {"｜DSML｜ calls>", "deepseek_v41"},
      {"｜DSML｜tool_calls>", "deepseek_v4"},
      {"｜DSML｜", "deepseek_v32"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"```json\\n", "deepseek_v3"},
      {"<｜tool▁calls▁begin｜>", "deepseek_v31"},
      {"<｜tool_calls_begin｜>", "step3"},
      {"[TOOL_CALLS]", "mistral"},
      {"<|plamo:begin_tool_requests", "plamo3"},
      {"<|open|>tools", "kimi_k3"},
      {"<|channel|>commentary", "openai"},
      {"<|tool_call>", "gemma4"},
      {"<|tool_call|>", "granite"},
      {"<|tool_call_start|>", "lfm2"},
      {"<|action_start|>", "internlm"},
      {"functools[", "phi4_mini_json"},
      {"<function_calls>", "olmo3"},
      {"<tool_calls>", "jamba"},
      {"<tool_call>", "hermes"},
      {"<|python_start|>", "llama4_pythonic"},
  }};
  for (const auto& [mark, name] : kMarks) {
    if (chat_template.find(mark) == std::string_view::npos) continue;
    if (mark == "```json\\n" && chat_template.find("<｜tool▁sep｜>") == std::string_view::npos)
      continue;
    return FindToolParser(name);
  }
  const bool llama = chat_template.find("<|start_header_id|>") != std::string_view::npos &&
                     chat_template.find("\"parameters\"") != std::string_view::npos;
  return llama ? FindToolParser("llama3_json") : nullptr;
}

const ReasoningParser* SuggestReasoningParser(std::string_view chat_template) {
  static constexpr std::array<std::array<std::string_view, 2>, 12> kMarks = {{
      {"<seed:think>", "seed_oss"},
      {"<mm:think>", "minimax_m3"},
      {"[THINK]", "mistral"},
      {"<|channel>thought", "gemma4"},
      {"my thought process:", "granite"},
      {"<|plamo:begin_think", "plamo3"},
      {"<|open|>think", "kimi_k3"},
      {"<|channel|>analysis", "openai_gptoss"},
      {"｜DSML｜ calls>", "deepseek_v41"},
      {"｜DSML｜tool_calls>", "deepseek_v4"},
      {"<minimax:tool_call>", "minimax_m2"},
      {"enable_thinking", "qwen3"},
  }};
  for (const auto& [mark, name] : kMarks) {
    if (chat_template.find(mark) != std::string_view::npos) return FindReasoningParser(name);
  }
  const bool thinks = chat_template.find("</think>") != std::string_view::npos;
  return thinks ? FindReasoningParser("deepseek_r1") : nullptr;
}

}  // namespace sluice
