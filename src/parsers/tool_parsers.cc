#include <algorithm>
#include <array>

#include "parsers/delimited_reader.h"
#include "parsers/gemma_reader.h"
#include "parsers/harmony_reader.h"
#include "parsers/json_reader.h"
#include "parsers/minimax_m3_reader.h"
#include "parsers/mistral_reader.h"
#include "parsers/model_grammars.h"
#include "parsers/parser_table.h"
#include "parsers/pythonic_reader.h"
#include "parsers/tagged_reader.h"

namespace sluice {
namespace {

using Reader = std::unique_ptr<ToolReader>;

JsonFormat MarkedJson(std::string begin, std::string end) {
  return {.begin = {std::move(begin)}, .end = {std::move(end)}, .keys = {}};
}

Reader Hermes(const ToolTypes&) {
  static const JsonFormat kFormat = MarkedJson("<tool_call>", "</tool_call>");
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Longcat(const ToolTypes&) {
  static const JsonFormat kFormat = MarkedJson("<longcat_tool_call>", "</longcat_tool_call>");
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Granite4(const ToolTypes&) {
  static const JsonFormat kFormat = [] {
    JsonFormat format = MarkedJson("<tool_call>", "</tool_call>");
    format.keeps_text_after = true;
    return format;
  }();
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Ernie(const ToolTypes&) {
  static const JsonFormat kFormat = [] {
    JsonFormat format = MarkedJson("<tool_call>", "</tool_call>");
    format.keys.may_lack_arguments = true;
    format.closed_only = true;
    format.drops_broken = true;
    return format;
  }();
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Granite20b(const ToolTypes&) {
  static const JsonFormat kFormat = {.begin = {"<function_call>"}, .end = {}, .keys = {}};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Granite(const ToolTypes&) {
  static const JsonFormat kFormat = {.begin = {"<|tool_call|>", "<tool_call>"},
                                     .end = {},
                                     .list = true,
                                     .keys = {.may_lack_arguments = true},
                                     .drops_broken = true};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Internlm(const ToolTypes&) {
  static const JsonFormat kFormat = {.begin = {"<|action_start|><|plugin|>"},
                                     .end = {"<|action_end|>"},
                                     .keys = {.arguments = {"parameters", "arguments"}}};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader ListInTags(const ToolTypes&) {
  static const JsonFormat kFormat = {
      .begin = {"<tool_calls>"}, .end = {"</tool_calls>"}, .list = true, .keys = {}};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Xlam(const ToolTypes&) {
  static const JsonFormat kFormat = {
      .begin = {"["}, .end = {}, .list = true, .keys = {}, .at_start = true};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Llama(const ToolTypes&) {
  static const JsonFormat kFormat = {
      .begin = {"<|python_tag|>", "{"},
      .end = {},
      .keys = {.arguments = {"arguments", "parameters"}, .wait_for_value = true}};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader Pythonic(const ToolTypes&) {
  static const PythonicFormat kFormat = {.begin = {}, .end = {}, .prefix = {}};
  return std::make_unique<PythonicReader>(&kFormat);
}

Reader Llama4Pythonic(const ToolTypes&) {
  static const PythonicFormat kFormat = {
      .begin = {}, .end = {"<|python_end|>"}, .prefix = {"<|python_start|>"}};
  return std::make_unique<PythonicReader>(&kFormat);
}

Reader Olmo(const ToolTypes&) {
  static const PythonicFormat kFormat = {
      .begin = {"<function_calls>"}, .end = {"</function_calls>"}, .prefix = {}, .brackets = false};
  return std::make_unique<PythonicReader>(&kFormat);
}

Reader Lfm(const ToolTypes&) {
  static const PythonicFormat kFormat = {.begin = {"<|tool_call_start|>"},
                                         .end = {"<|tool_call_end|>"},
                                         .prefix = {},
                                         .keeps_text_after = true};
  return std::make_unique<PythonicReader>(&kFormat);
}

Reader Mistral(const ToolTypes&) {
  return std::make_unique<MistralReader>();
}

Reader Phi(const ToolTypes&) {
  static const JsonFormat kFormat = {.begin = {"functools["},
                                     .end = {},
                                     .list = true,
                                     .keys = {.arguments = {"arguments", "parameters"}},
                                     .drops_broken = true};
  return std::make_unique<JsonReader>(&kFormat);
}

Reader MinimaxM3(const ToolTypes& types) {
  return std::make_unique<MinimaxM3Reader>(&types);
}

Reader Gemma(const ToolTypes& types) {
  return std::make_unique<GemmaReader>(&types);
}

TaggedFormat FunctionTags(std::string begin, std::string end) {
  TaggedFormat format;
  format.begin = {std::move(begin)};
  format.end = std::move(end);
  format.call_open = "<function=";
  format.name_end = {">"};
  format.call_close = "</function>";
  format.parameter_open = "<parameter=";
  format.parameter_name_end = ">";
  format.value_close = "</parameter>";
  format.trims_newline = true;
  return format;
}

Reader QwenCoder(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format = FunctionTags("<tool_call>", "</tool_call>");
    format.begin.push_back(format.call_open);  // models sometimes omit <tool_call>
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader Mimo(const ToolTypes& types) {
  static const TaggedFormat kFormat = FunctionTags("<tool_call>", "</tool_call>");
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader SeedOss(const ToolTypes& types) {
  static const TaggedFormat kFormat = FunctionTags("<seed:tool_call>", "</seed:tool_call>");
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

// Describes tags of the form <PREFIXinvoke name="f"><PREFIXparameter name="a">.
TaggedFormat InvokeTags(const std::string& prefix) {
  TaggedFormat format;
  format.call_open = "<" + prefix + "invoke name=\"";
  format.name_end = {"\">"};
  format.call_close = "</" + prefix + "invoke>";
  format.parameter_open = "<" + prefix + "parameter name=\"";
  format.parameter_name_end = "\">";
  format.value_close = "</" + prefix + "parameter>";
  return format;
}

Reader Minimax(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format = InvokeTags("");
    format.begin = {"<minimax:tool_call>"};
    format.end = "</minimax:tool_call>";
    format.trims_newline = true;
    format.known_tools_only = true;
    format.dropped = {format.end};
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

// `space`: white space before the word in each tag.
TaggedFormat DeepseekTags(const std::string& space, const std::string& block) {
  TaggedFormat format = InvokeTags("｜DSML｜" + space);
  format.begin = {"<｜DSML｜" + block + ">"};
  format.end = "</｜DSML｜" + block + ">";
  format.is_string_mark = "string=\"true";
  format.is_json_mark = "string=\"false";
  return format;
}

Reader DeepseekV32(const ToolTypes& types) {
  static const TaggedFormat kFormat = DeepseekTags("", "function_calls");
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader DeepseekV4(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format = DeepseekTags("", "tool_calls");
    // Adds variants of the marks that the models sometimes write.
    format.begin.insert(format.begin.end(),
                        {"<｜DSML｜toolcalls>", "<｜DSML｜tool>", format.call_open});
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader DeepseekV41Tags(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format = DeepseekTags(" ", " calls");
    format.begin.push_back(format.call_open);
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader KimiK3(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format;
    format.begin = {"<|open|>tools<|sep|>"};
    format.end = "<|close|>tools<|sep|>";
    format.dropped = {"<|open|>response<|sep|>", "<|close|>response<|sep|>",
                      "<|close|>message<|sep|>"};
    format.call_open = "<|open|>call tool=\"";
    format.name_end = {"\""};
    format.call_close = "<|close|>call<|sep|>";
    format.parameter_open = "<|open|>argument key=\"";
    format.parameter_name_end = "\"<|sep|>";
    format.value_close = "<|close|>argument<|sep|>";
    format.is_string_mark = "type=\"string";
    format.is_json_mark = "type=\"";
    format.escapes_names = true;
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader Step3(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format = InvokeTags("steptml:");
    format.begin = {"<｜tool_calls_begin｜>"};
    format.end = "<｜tool_calls_end｜>";
    format.keeps_text_after = true;
    format.scalars_only = true;
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

Reader Glm(const ToolTypes& types) {
  static const TaggedFormat kFormat = [] {
    TaggedFormat format;
    format.begin = {"<tool_call>"};
    format.end = "</tool_call>";
    format.parameter_open = "<arg_key>";
    format.name_end = {"\n", format.parameter_open, format.end};
    format.parameter_name_end = "</arg_key>";
    format.value_open = "<arg_value>";
    format.value_close = "</arg_value>";
    format.known_tools_only = true;
    return format;
  }();
  return std::make_unique<TaggedReader>(&kFormat, &types);
}

DelimitedFormat DeepseekMarks() {
  DelimitedFormat format;
  format.begin = "<｜tool▁calls▁begin｜>";
  format.end = "<｜tool▁calls▁end｜>";
  format.call_begin = "<｜tool▁call▁begin｜>";
  return format;
}

Reader DeepseekV3(const ToolTypes&) {
  static const DelimitedFormat kFormat = [] {
    DelimitedFormat format = DeepseekMarks();
    format.name_begin = "<｜tool▁sep｜>";
    format.name_end = {"\n```json\n"};
    format.call_end = {"\n```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"};
    return format;
  }();
  return std::make_unique<DelimitedReader>(&kFormat);
}

Reader DeepseekV31(const ToolTypes&) {
  static const DelimitedFormat kFormat = [] {
    DelimitedFormat format = DeepseekMarks();
    format.name_end = {"<｜tool▁sep｜>"};
    format.call_end = {"<｜tool▁call▁end｜>"};
    return format;
  }();
  return std::make_unique<DelimitedReader>(&kFormat);
}

Reader Kimi(const ToolTypes&) {
  static const DelimitedFormat kFormat = [] {
    DelimitedFormat format;
    format.begin = "<|tool_calls_section_begin|>";
    format.end = "<|tool_calls_section_end|>";
    format.call_begin = "<|tool_call_begin|>";
    format.name_end = {"<|tool_call_argument_begin|>"};
    format.call_end = {"<|tool_call_end|>"};
    format.name_is_id = true;
    return format;
  }();
  return std::make_unique<DelimitedReader>(&kFormat);
}

Reader Plamo(const ToolTypes&) {
  static const DelimitedFormat kFormat = [] {
    DelimitedFormat format;
    format.begin = "<|plamo:begin_tool_requests:plamo|>";
    format.end = "<|plamo:end_tool_requests:plamo|>";
    format.call_begin = "<|plamo:begin_tool_request:plamo|>";
    format.name_begin = "<|plamo:begin_tool_name:plamo|>";
    format.name_end = {
        "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
        "<|plamo:constrain|>json<|plamo:msg|>"};
    format.call_end = {"<|plamo:end_tool_arguments:plamo|>"};
    return format;
  }();
  return std::make_unique<DelimitedReader>(&kFormat);
}

constexpr std::string_view kHermesExample =
    R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
constexpr std::string_view kTagsExample =
    "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>";
constexpr std::string_view kListExample =
    R"(<tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>)";
constexpr std::string_view kGlmExample =
    "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>";

// Ordered as in the documentation: formats of models that this program can load come first.
constexpr ToolParser kToolParsers[] = {
    {"hermes", kHermesExample, true, Hermes, kHermesGrammar},
    {"qwen3_json", kHermesExample, true, Hermes, kHermesGrammar},
    {"llama3_json", R"({"name": "f", "parameters": {"a": 1}})", false, Llama, kLlamaGrammar},
    {"llama4_json", R"({"name": "f", "parameters": {"a": 1}})", false, Llama, kLlamaGrammar},
    {"llama4_pythonic", "[f(a=1)]", false, Llama4Pythonic},
    {"pythonic", "[f(a=1)]", false, Pythonic},
    {"qwen3_coder", kTagsExample, true, QwenCoder, kQwenCoderGrammar},
    {"qwen3_xml", kTagsExample, true, QwenCoder, kQwenCoderGrammar},
    {"mistral", R"([TOOL_CALLS]f[ARGS]{"a": 1})", true, Mistral, kMistralListGrammar, "[ARGS]",
     kMistralGrammar},
    {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f ...<｜tool▁call▁end｜>", false,
     DeepseekV3, kDeepseekV3Grammar},
    {"deepseek_v31", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>", false,
     DeepseekV31, kDeepseekV31Grammar},
    {"deepseek_v32", "<｜DSML｜invoke name=\"f\">...</｜DSML｜invoke>", true, DeepseekV32,
     kDeepseekV32Grammar},
    {"deepseek_v4", "<｜DSML｜invoke name=\"f\">...</｜DSML｜invoke>", true, DeepseekV4,
     kDeepseekV4Grammar},
    {"deepseek_v41", "<｜DSML｜ invoke name=\"f\">...</｜DSML｜ invoke>", true, DeepseekV41Tags,
     kDeepseekV41Grammar},
    {"openai",
     R"(<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>)",
     true,
     nullptr,
     kHarmonyGrammar,
     "",
     {},
     MakeHarmonyReader},
    {"ernie45", kHermesExample, false, Ernie},
    {"gemma4", "<|tool_call>call:f{a:1}<tool_call|>", true, Gemma},
    {"glm45", kGlmExample, true, Glm, kGlmGrammar},
    {"glm47", kGlmExample, true, Glm, kGlmGrammar},
    {"granite", R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1}}])", true, Granite},
    {"granite-20b-fc", R"(<function_call> {"name": "f", "arguments": {"a": 1}})", false,
     Granite20b},
    {"granite4", kHermesExample, true, Granite4},
    {"hunyuan_a13b", kListExample, false, ListInTags},
    {"internlm", R"(<|action_start|><|plugin|>{"name": "f", "parameters": {"a": 1}}<|action_end|>)",
     true, Internlm},
    {"jamba", kListExample, true, ListInTags},
    {"kimi_k2",
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>",
     true, Kimi, kKimiGrammar},
    {"kimi_k3", R"(<|open|>call tool="f" index="1"<|sep|>...<|close|>call<|sep|>)", true, KimiK3},
    {"lfm2", "<|tool_call_start|>[f(a=1)]<|tool_call_end|>", true, Lfm},
    {"ling3", kGlmExample, true, Glm, kGlmGrammar},
    {"longcat", R"(<longcat_tool_call>{"name": "f", "arguments": {"a": 1}}</longcat_tool_call>)",
     true, Longcat, kLongcatGrammar},
    {"mimo", kTagsExample, true, Mimo, kMimoGrammar},
    {"minimax_m2", "<minimax:tool_call><invoke name=\"f\">...</invoke></minimax:tool_call>", true,
     Minimax, kMinimaxGrammar},
    {.name = "minimax_m3",
     .example = "]<]minimax[>[<invoke name=\"f\">...]<]minimax[>[</invoke>",
     .keeps_special_tokens = false,
     .make = MinimaxM3,
     .reads_schemas = true},
    {"olmo3", "<function_calls>f(a=1)</function_calls>", false, Olmo},
    {"phi4_mini_json", R"(functools[{"name": "f", "arguments": {"a": 1}}])", false, Phi},
    {"plamo3", "<|plamo:begin_tool_request:plamo|>...<|plamo:end_tool_request:plamo|>", true, Plamo,
     kPlamoGrammar},
    {"seed_oss", "<seed:tool_call><function=f>...</function></seed:tool_call>", true, SeedOss},
    {"step3", "<steptml:invoke name=\"f\">...</steptml:invoke>", true, Step3},
    {"step3p5", kTagsExample, true, Mimo, kQwenCoderGrammar},
    {"xlam", R"([{"name": "f", "arguments": {"a": 1}}])", false, Xlam},
};

}  // namespace

std::span<const ToolParser> ToolParsers() {
  return kToolParsers;
}

const ToolParser* FindToolParser(std::string_view name) {
  const auto* found = std::find_if(std::begin(kToolParsers), std::end(kToolParsers),
                                   [&](const ToolParser& parser) { return parser.name == name; });
  return found == std::end(kToolParsers) ? nullptr : found;
}

Result<const ToolParser*> ToolParserNamed(std::string_view name, std::string_view param) {
  // Names that trtllm-serve uses for the same parsers.
  static constexpr std::array<std::array<std::string_view, 2>, 4> kOtherNames = {{
      {"qwen3", "hermes"},
      {"llama3", "llama3_json"},
      {"glm4", "glm45"},
      {"kimi_k25", "kimi_k2"},
  }};
  if (const ToolParser* parser = FindToolParser(name)) return parser;
  for (const auto& [other, own] : kOtherNames) {
    if (name == other) return FindToolParser(own);
  }
  std::string names;
  for (const ToolParser& parser : ToolParsers()) {
    names += names.empty() ? "" : ", ";
    names += parser.name;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "there is no tool parser '" + std::string(name) + "'; expected one of: " + names,
              std::string(param));
}

Status CheckParsersAgree(const ToolParser* tools, const ReasoningParser* reasoning) {
  if (tools == nullptr || reasoning == nullptr || tools->channels == reasoning->channels) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "the tool parser '" + std::string(tools->name) + "' and the reasoning parser '" +
                  std::string(reasoning->name) + "' read answers of different formats",
              "reasoning-parser");
}

}  // namespace sluice
