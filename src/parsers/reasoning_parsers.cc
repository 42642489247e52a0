#include <algorithm>
#include <array>
#include <iterator>

#include "parsers/harmony_reader.h"
#include "parsers/parser_table.h"

namespace sluice {
namespace {

// For models that answer with or without a thought, depending on the request.
ReasoningFormat Switchable(std::vector<std::string> call_marks) {
  return {.start = {"<think>"},
          .end = {"</think>"},
          .starts_inside = true,
          .reads_prompt = true,
          .can_be_off = true,
          .repeats = true,
          .call_marks = std::move(call_marks),
          .content_prefix = ""};
}

// For models that always think.
ReasoningFormat Always(bool repeats) {
  return {.start = {"<think>"},
          .end = {"</think>"},
          .starts_inside = true,
          .reads_prompt = true,
          .repeats = repeats,
          .call_marks = {},
          .content_prefix = ""};
}

// For models whose thoughts always have a begin mark.
ReasoningFormat Marked(std::vector<std::string> start, std::vector<std::string> end) {
  return {.start = std::move(start), .end = std::move(end), .call_marks = {}, .content_prefix = ""};
}

// Harmony's reader needs no marks. The marks of this format only show where a constraint of the
// final message begins.
ReasoningFormat Harmony() {
  ReasoningFormat format = Marked({"<|channel|>"}, {"<|message|>"});
  format.before_end = "<|channel|>final";
  return format;
}

std::vector<ReasoningParser> MakeReasoningParsers() {
  const ReasoningFormat thinks = Switchable({"<tool_call>"});
  ReasoningFormat holo = Switchable({});
  holo.repeats = false;
  ReasoningFormat kimi = Switchable({"<|tool_calls_section_begin|>"});
  ReasoningFormat seed = Switchable({"<seed:tool_call>"});
  seed.start = {"<seed:think>"};
  seed.end = {"</seed:think>"};
  ReasoningFormat minimax = Always(true);
  minimax.call_marks = {"<minimax:tool_call>"};
  ReasoningFormat append = Always(false);
  append.content_prefix = "<think>";
  ReasoningFormat step = Always(false);
  step.keeps_start = true;
  ReasoningFormat switched = Always(false);
  switched.must_be_on = true;
  ReasoningFormat deepseek =
      Switchable({"<｜DSML｜tool_calls>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"});
  ReasoningFormat plamo = Switchable({"<|plamo:begin_tool_requests:plamo|>"});
  plamo.start = {"<|plamo:begin_think:plamo|>"};
  plamo.end = {"<|plamo:end_think:plamo|>"};
  ReasoningFormat k3 = Switchable({"<|open|>tools<|sep|>"});
  k3.start = {"<|open|>think<|sep|>"};
  // The response has its own channel. The channel's marks are not content.
  k3.end = {"<|close|>think<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>",
            "<|close|>message<|sep|>"};
  ReasoningFormat granite = Marked({"Here is my thought process:", "Here's my thought process:"},
                                   {"Here is my response:", "Here's my response:"});
  granite.needs_words = true;
  ReasoningFormat hunyuan = Marked({"<think>\n"}, {"\n</think>\n<answer>\n"});
  hunyuan.needs_words = true;
  ReasoningFormat mistral = Marked({"[THINK]"}, {"[/THINK]"});
  mistral.repeats = true;
  ReasoningFormat gemma = Marked({"<|channel>thought\n"}, {"<channel|>"});
  gemma.reads_prompt = true;
  gemma.repeats = true;
  return {{"qwen3", thinks},
          {"deepseek_r1", Always(false)},
          {"mistral", mistral},
          {"granite", granite},
          {"deepseek_v3", switched},
          {"deepseek_v4", deepseek},
          {"deepseek_v41", Switchable({"<｜DSML｜ calls>"})},
          {"openai_gptoss", Harmony(), MakeHarmonyReader},
          {"ernie45", Always(false)},
          {"gemma4", gemma},
          {"glm45", thinks},
          {"glm47", thinks},
          {"holo2", holo},
          {"hunyuan_a13b", hunyuan},
          {"kimi_k2", kimi},
          {"kimi_k3", k3},
          {"ling3", thinks},
          {"mimo", thinks},
          {"minimax_m2", minimax},
          {"minimax_m2_append_think", append},
          {"minimax_m3", Marked({"<mm:think>"}, {"</mm:think>"})},
          {"nemotron_v3", thinks},
          {"olmo3", Always(false)},
          {"plamo3", plamo},
          {"seed_oss", seed},
          {"step3", step},
          {"step3p5", Always(true)}};
}

const std::vector<ReasoningParser>& AllReasoningParsers() {
  static const std::vector<ReasoningParser> kParsers = MakeReasoningParsers();
  return kParsers;
}

}  // namespace

std::span<const ReasoningParser> ReasoningParsers() {
  return AllReasoningParsers();
}

const ReasoningParser* FindReasoningParser(std::string_view name) {
  for (const ReasoningParser& parser : AllReasoningParsers()) {
    if (parser.name == name) return &parser;
  }
  return nullptr;
}

Result<const ReasoningParser*> ReasoningParserNamed(std::string_view name, std::string_view param) {
  // Names that trtllm-serve uses for the same parsers.
  static constexpr std::array<std::array<std::string_view, 2>, 4> kOtherNames = {{
      {"deepseek-r1", "deepseek_r1"},
      {"qwen3_5", "qwen3"},
      {"nano-v3", "nemotron_v3"},
      {"kimi_k25", "kimi_k2"},
  }};
  if (const ReasoningParser* parser = FindReasoningParser(name)) return parser;
  for (const auto& [other, own] : kOtherNames) {
    if (name == other) return FindReasoningParser(own);
  }
  std::string names;
  for (const ReasoningParser& parser : ReasoningParsers()) {
    names += names.empty() ? "" : ", ";
    names += parser.name;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "there is no reasoning parser '" + std::string(name) + "'; expected one of: " + names,
              std::string(param));
}

}  // namespace sluice
