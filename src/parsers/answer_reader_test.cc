#include "parsers/answer_reader.h"
#include "base/ascii.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json_lines.h"
#include "base/source_path_testing.h"
#include "parsers/answer_reading_testing.h"

namespace sluice {
namespace {

using Answer = ReadParts;

Answer ReadAnswer(const AnswerReaderOptions& options, std::string_view text, size_t most,
                  std::mt19937& random) {
  return ReadInPieces(options, text, most, random);
}

AnswerReaderOptions Hermes() {
  return ParserOptions("hermes");
}

std::string Member(const json::Value& row, std::string_view key) {
  const json::Value* value = row.Find(key);
  return value == nullptr ? "" : value->as_string();
}

// Returns arguments as JSON if they are valid JSON, else as text.
json::Value Comparable(const std::string& arguments) {
  auto value = json::Parse(arguments);
  return value ? *std::move(value) : json::Value(arguments);
}

TEST(AnswerReaderTest, RecordedTextsGiveRecordedAnswersHoweverTheyAreCut) {
  const auto tools =
      json::Parse(ReadFile(SourcePath("tests/data/parsers/tools.json"), 1 << 20).value());
  const auto types = std::make_shared<const ToolTypes>(tools.value(), /*keeps_schemas=*/true);
  const std::string file = ReadFile(SourcePath("tests/data/parsers/cases.jsonl"), 1 << 24).value();
  std::mt19937 random(7);
  int cases = 0;
  const auto check = [&](const json::Value& row, int64_t line) -> Status {
    SCOPED_TRACE(line);
    ++cases;
    const std::string prompt = Member(row, "prompt");
    AnswerReaderOptions options = Hermes();
    options.tools = FindToolParser(Member(row, "tool_parser"));
    options.reasoning = FindReasoningParser(Member(row, "reasoning_parser"));
    EXPECT_TRUE(options.tools != nullptr || options.reasoning != nullptr);
    options.types = types;
    options.prompt = prompt;
    if (const json::Value* kwargs = row.Find("chat_template_kwargs")) {
      options.thinking = ThinkingSwitch(*kwargs);
    }
    const std::string text = row.Find("text")->as_string();
    const Answer whole = ReadAnswer(options, text, 0, random);
    EXPECT_EQ(AsciiTrim(whole.content), AsciiTrim(Member(row, "content")));
    EXPECT_EQ(AsciiTrim(whole.reasoning), AsciiTrim(Member(row, "reasoning")));
    const json::Value* calls = row.Find("calls");
    const size_t wanted = calls == nullptr ? 0 : calls->as_array().size();
    EXPECT_EQ(whole.calls.size(), wanted);
    for (size_t i = 0; i < std::min(wanted, whole.calls.size()); ++i) {
      const json::Value::Array& call = calls->as_array()[i].as_array();
      EXPECT_EQ(whole.calls[i].first, call[0].as_string());
      EXPECT_TRUE(Comparable(whole.calls[i].second) == Comparable(call[1].as_string()))
          << whole.calls[i].second << " instead of " << call[1].as_string();
    }
    for (const size_t most : {1, 2, 7, 40}) {
      EXPECT_TRUE(ReadAnswer(options, text, most, random) == whole) << "pieces of " << most;
    }
    return {};
  };
  ASSERT_TRUE(json::ForEachLine(file, "cases.jsonl", {}, check));
  EXPECT_GT(cases, 300);
}

TEST(AnswerReaderTest, ArgumentsArePassedOnBeforeTheCallEnds) {
  AnswerReader reader(Hermes());
  Answer answer;
  AddParts(reader.Push(R"(<tool_call>{"name": "f", "arguments": {"a": "be)"), answer);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].second, R"({"a": "be)");
}

TEST(AnswerReaderTest, WhatIsNoCallIsContent) {
  std::mt19937 random(1);
  for (const char* text : {"<tool_call>{'name': 1}", "<tool_call>[1]</tool_call>",
                           R"(<tool_call>{"name": "f"}</tool_call>)"}) {
    EXPECT_EQ(ReadAnswer(Hermes(), text, 0, random).content, text);
  }
  AnswerReaderOptions llama = Hermes();
  llama.tools = FindToolParser("llama3_json");
  constexpr char kJson[] = R"({"name": "Bob", "age": 3} and {x})";
  EXPECT_EQ(ReadAnswer(llama, kJson, 0, random).content, kJson);
}

TEST(AnswerReaderTest, OfACutCallNothingIsKnownBeforeItsName) {
  std::mt19937 random(1);
  const auto read = [&](std::string_view parser, std::string_view text) {
    const AnswerReaderOptions options = ParserOptions(parser);
    const Answer answer = ReadAnswer(options, text, 0, random);
    for (const size_t most : {1, 3, 8}) {
      EXPECT_EQ(ReadAnswer(options, text, most, random), answer) << text;
    }
    return answer;
  };
  using Calls = std::vector<std::pair<std::string, std::string>>;
  const Answer named = read("hermes", "Hm.\n<tool_call>\n{\"name\": \"get\", \"argum");
  EXPECT_EQ(named.calls, (Calls{{"get", ""}}));
  EXPECT_EQ(named.content, "Hm.\n");
  EXPECT_EQ(read("hermes", "<tool_call>\n{\"name\": \"get"), Answer{});
  EXPECT_EQ(read("hermes", "<tool_call>\n"), Answer{});
  EXPECT_EQ(read("hermes", R"(<tool_call>{"name": "f", "id": 3)").calls, (Calls{{"f", ""}}));
  EXPECT_EQ(read("hermes", R"(<tool_call>{"name": "f", "arguments": {"a": 1)").calls,
            (Calls{{"f", R"({"a": 1)"}}));
  EXPECT_EQ(
      read("hermes", R"(<tool_call>{"name": "g", "arguments": {}}</tool_call><tool_call>{"na)")
          .calls,
      (Calls{{"g", "{}"}}));
  EXPECT_EQ(
      read("hermes", R"(<tool_call>{"name": "f", "arguments": {"a": "b,,}</tool_call>)").calls,
      (Calls{{"f", R"({"a": "b,,)"}}));
  EXPECT_EQ(read("hermes", R"(<tool_call>{"name": "f"}</tool_call>)").content,
            R"(<tool_call>{"name": "f"}</tool_call>)")
      << "not cut";
  EXPECT_EQ(read("llama3_json", R"({"name": "get", "parameters")").calls, (Calls{{"get", ""}}));
  // In formats without marks, the cut text may be an answer in JSON or in brackets, so it is
  // content.
  EXPECT_EQ(read("llama3_json", R"({"name": "Bob", "age": 3)").content,
            R"({"name": "Bob", "age": 3)");
  EXPECT_EQ(read("llama3_json", R"({"name": "ge)").content, R"({"name": "ge)");
  EXPECT_EQ(read("pythonic", "[ge").content, "[ge");
  EXPECT_EQ(read("pythonic", "[f(a=1, b=").calls, (Calls{{"f", R"({"a": 1})"}}));
  EXPECT_EQ(read("lfm2", "<|tool_call_start|>[ge"), Answer{});
  EXPECT_EQ(read("mistral", "[TOOL_CALLS]ge"), Answer{});
  EXPECT_EQ(read("mistral", "[TOOL_CALLS]get[ARGS]").calls, (Calls{{"get", ""}}));
  EXPECT_EQ(read("qwen3_coder", "<tool_call><function=ge"), Answer{});
  EXPECT_EQ(read("gemma4", "<|tool_call>call:ge"), Answer{});
  EXPECT_EQ(read("phi4_mini_json",
                 R"(functools[{"name": "f", "arguments": {"a": [1]}}, {"name": "g", "arg)")
                .calls,
            (Calls{{"f", R"({"a": [1]})"}, {"g", ""}}));
  EXPECT_EQ(read("ernie45", R"(<tool_call>{"name": "f", "arguments": {"a": 1)").calls,
            (Calls{{"f", R"({"a": 1)"}}));
  // A mark that is cut off is not returned as text or as part of the arguments.
  std::mt19937 again(1);
  EXPECT_EQ(ReadInPieces(ParserOptions("hermes", "qwen3"), "Hm.</thi", 2, again, true).reasoning,
            "Hm.");
  EXPECT_EQ(ReadInPieces(ParserOptions("hermes"), "1 <tool_c", 2, again, true).content, "1 ");
  EXPECT_EQ(read("hermes", "1 <tool_c").content, "1 <tool_c") << "the model's own end";
  EXPECT_EQ(read("qwen3_coder", "<tool_call><function=f><parameter=a>Oslo</para").calls,
            (Calls{{"f", R"({"a": "Oslo"})"}}));
  EXPECT_EQ(
      read("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool")
          .calls,
      (Calls{{"f", "{}"}}));
}

// Cuts a call off at any byte. Every parser must return the same result whether the text comes in
// one piece or byte by byte. It must never return a mark as content or an incomplete name.
TEST(AnswerReaderTest, EveryCutOfEveryFormat) {
  std::mt19937 random(11);
  const std::string file = ReadFile(SourcePath("tests/data/parsers/cases.jsonl"), 1 << 24).value();
  const auto check = [&](const json::Value& row, int64_t line) -> Status {
    const std::string parser = Member(row, "tool_parser");
    const std::string text = row.Find("text")->as_string();
    if (parser.empty() || !Member(row, "reasoning_parser").empty() || text.size() > 400) return {};
    SCOPED_TRACE(parser + ", line " + std::to_string(line));
    const AnswerReaderOptions options = ParserOptions(parser);
    const Answer full = ReadAnswer(options, text, 0, random);
    if (full.calls.empty()) return {};
    for (size_t size = 0; size < text.size(); ++size) {
      const std::string_view cut = std::string_view(text).substr(0, size);
      const Answer answer = ReadInPieces(options, cut, 0, random, /*cut=*/true);
      EXPECT_EQ(ReadInPieces(options, cut, 5, random, /*cut=*/true), answer) << cut;
      EXPECT_LE(answer.calls.size(), full.calls.size()) << cut;
      for (size_t i = 0; i < std::min(answer.calls.size(), full.calls.size()); ++i)
        EXPECT_EQ(answer.calls[i].first, full.calls[i].first) << cut;
      if (!answer.calls.empty()) {
        EXPECT_TRUE(AsciiTrim(full.content).starts_with(AsciiTrim(answer.content))) << cut;
      }
    }
    return {};
  };
  ASSERT_TRUE(json::ForEachLine(file, "cases.jsonl", {}, check));
}

TEST(AnswerReaderTest, AThoughtWithoutAWordIsContentWhereAFormatNeedsSome) {
  std::mt19937 random(1);
  const auto read = [&](std::string_view parser, std::string_view text) {
    const Answer answer = ReadAnswer(ParserOptions("", parser), text, 0, random);
    EXPECT_EQ(ReadAnswer(ParserOptions("", parser), text, 2, random), answer) << text;
    return std::pair(answer.reasoning, answer.content);
  };
  using Said = std::pair<std::string, std::string>;
  EXPECT_EQ(read("hunyuan_a13b", "<think>\n"), Said("", "<think>\n"));
  EXPECT_EQ(read("hunyuan_a13b", "<think>\n\n</thi"), Said("\n</thi", ""));
  EXPECT_EQ(read("hunyuan_a13b", "<think>\n\n</think>\n<answer>\n"), Said("", ""));
  EXPECT_EQ(read("granite", "Here's my thought process:"), Said("", "Here's my thought process:"));
  EXPECT_EQ(read("minimax_m3", "<mm:think>"), Said("", ""));
}

TEST(AnswerReaderTest, ArgumentsOfLlamaWaitForTheirFirstValue) {
  AnswerReader reader(ParserOptions("llama3_json"));
  Answer answer;
  AddParts(reader.Push(R"({"name": "f", "parameters": {"a:": )"), answer);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].second, "");
  AddParts(reader.Push(R"("b)"), answer);
  EXPECT_EQ(answer.calls[0].second, R"({"a:": "b)");
  std::mt19937 random(1);
  EXPECT_EQ(
      ReadAnswer(ParserOptions("llama3_json"), R"({"name": "f", "parameters": {}})", 3, random)
          .calls[0]
          .second,
      "{}");
}

TEST(AnswerReaderTest, AMarkThatEndsTheAnswerEndsTheArguments) {
  std::mt19937 random(1);
  const auto arguments = [&](const std::string& end, size_t most) {
    const std::string text = R"(<tool_call>{"name": "f", "arguments": {"a": "b)" + end;
    const Answer answer = ReadAnswer(Hermes(), text, most, random);
    return answer.calls.empty() ? answer.content : answer.calls[0].second;
  };
  for (const size_t most : {0, 1, 4}) {
    EXPECT_EQ(arguments(",,}\n</tool_call>", most), R"({"a": "b,,)");
    EXPECT_EQ(arguments("</tool_call>\n", most), R"({"a": "b)");
    EXPECT_EQ(arguments("}</tool_c", most), R"({"a": "b}</tool_c)") << "cut inside the mark";
    EXPECT_EQ(arguments(R"(}</tool_call> c"}}</tool_call>)", most), R"({"a": "b}</tool_call> c"})");
    EXPECT_EQ(arguments(R"(\}</tool_call>"}})", most), R"({"a": "b\}</tool_call>"})");
  }
}

TEST(AnswerReaderTest, BlanksAroundAListedValueAreNotOfIt) {
  std::mt19937 random(1);
  AnswerReaderOptions options = Hermes();
  options.tools = FindToolParser("qwen3_coder");
  options.types = std::make_shared<const ToolTypes>(
      json::Parse(R"([{"name": "f", "strict": true, "parameters": {"properties": {
          "a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "string"}}}}])")
          .value());
  const Answer answer = ReadAnswer(options,
                                   "<tool_call><function=f><parameter=a>\n x\t\n</parameter>"
                                   "<parameter=b>\n x\t\n</parameter></function></tool_call>",
                                   5, random);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].second, R"({"a": "x", "b": " x\t"})");
}

TEST(AnswerReaderTest, ForcedCalls) {
  std::mt19937 random(1);
  AnswerReaderOptions options = Hermes();
  options.form = CallForm::kList;
  constexpr char kList[] =
      R"( [{"name": "f", "parameters": {"a": [1]}}, {"name": "g", "parameters": {}} )";
  const Answer list = ReadAnswer(options, std::string(kList) + "]", 4, random);
  ASSERT_EQ(list.calls.size(), 2u);
  EXPECT_EQ(list.calls[0].second, R"({"a": [1]})");
  EXPECT_EQ(list.calls[1].first, "g");
  EXPECT_EQ(list.content, "");
  EXPECT_EQ(ReadAnswer(options, kList, 4, random), list) << "cut";
  EXPECT_EQ(ReadAnswer(options, R"([{"na)", 4, random), Answer{});
  options.form = CallForm::kArguments;
  options.named = "h";
  options.reasoning = FindReasoningParser("deepseek_r1");
  const Answer named = ReadAnswer(options, R"(hm</think>{"a": 1)", 1, random);
  EXPECT_EQ(named.reasoning, "hm");
  ASSERT_EQ(named.calls.size(), 1u);
  EXPECT_EQ(named.calls[0].first, "h");
  EXPECT_EQ(named.calls[0].second, R"({"a": 1)");
}

TEST(AnswerReaderTest, ArgumentsBeforeTheNameWaitForIt) {
  std::mt19937 random(1);
  const Answer answer = ReadAnswer(
      Hermes(), R"(<tool_call>{"arguments": {"a": [1]}, "name": "f"}</tool_call>)", 3, random);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0], (std::pair<std::string, std::string>("f", R"({"a": [1]})")));
}

TEST(AnswerReaderTest, KimiWritesIdsOfItsOwn) {
  AnswerReaderOptions kimi = Hermes();
  kimi.tools = FindToolParser("kimi_k2");
  AnswerReader reader(kimi);
  const auto events = reader.Push(
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.a.b:3<|tool_call_argument_begin|>");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "a.b");
  EXPECT_EQ(events[0].id, "functions.a.b:3");
}

TEST(AnswerReaderTest, MarksInsideACallAreText) {
  std::mt19937 random(1);
  AnswerReaderOptions options = Hermes();
  options.reasoning = FindReasoningParser("qwen3");
  const Answer answer = ReadAnswer(
      options,
      R"(x</think><tool_call>{"name": "f", "arguments": {"a": "<think>b</think>"}}</tool_call>)", 1,
      random);
  EXPECT_EQ(answer.reasoning, "x");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].second, R"({"a": "<think>b</think>"})");
}

TEST(AnswerReaderTest, ACallInAThoughtThatAMarkHasBegunIsText) {
  std::mt19937 random(1);
  constexpr char kThought[] = R"(maybe <tool_call>{"name": "f", "arguments": {}}</tool_call> no)";
  AnswerReaderOptions options = ParserOptions("hermes", "qwen3");
  for (const char* prompt : {"", "<think>\n"}) {
    options.prompt = prompt;
    const std::string start = *prompt == 0 ? "<think>" : "";
    const Answer answer = ReadAnswer(options, start + kThought + "</think>ok", 3, random);
    EXPECT_EQ(answer.reasoning, kThought);
    EXPECT_EQ(answer.content, "ok");
    EXPECT_TRUE(answer.calls.empty());
  }
  // If text may be a thought without a begin mark, a call ends the thought.
  options.prompt = {};
  EXPECT_EQ(ReadAnswer(options, kThought, 3, random).calls.size(), 1u);
}

TEST(AnswerReaderTest, AConstrainedAnswerThinksOnlyWhereAMarkSaysSo) {
  std::mt19937 random(1);
  for (const ReasoningParser& parser : ReasoningParsers()) {
    if (parser.channels != nullptr) continue;
    SCOPED_TRACE(parser.name);
    const std::string& start = parser.format.start.front();
    const std::string& end = parser.format.end.front();
    AnswerReaderOptions options = ParserOptions("", parser.name);
    options.constrained = true;
    const auto said = [&](const std::string& text) {
      const Answer answer = ReadAnswer(options, text, 3, random);
      return std::pair(answer.reasoning, answer.content);
    };
    using Pair = std::pair<std::string, std::string>;
    const std::string kept = parser.format.keeps_start ? start : "";
    const std::string json = "{\"a\": \"" + start + end + "\"}";
    EXPECT_EQ(said(json), Pair("", json));
    EXPECT_EQ(said(start + "b" + end + json), Pair(kept + "b", json));
    EXPECT_EQ(said(start.substr(0, start.size() - 1)), Pair("", start.substr(0, start.size() - 1)));
    const std::string open = "?" + start, closed = start + end + " so";
    options.prompt = open;
    EXPECT_EQ(said("b" + end + json), Pair("b", json));
    options.prompt = closed;
    EXPECT_EQ(said(json), Pair("", json));
    options.thinking = false;
    EXPECT_EQ(said(json), Pair("", json));
  }
}

TEST(AnswerReaderTest, StopStringsCountOutsideMarkedThoughts) {
  AnswerReaderOptions options = ParserOptions("hermes", "qwen3");
  options.stops = {{"in", "xyz"}, /*include_in_output=*/false, 0};
  const auto read = [&](std::string_view text, size_t step) {
    AnswerReader reader(options);
    Answer answer;
    for (size_t at = 0; at < text.size(); at += step)
      AddParts(reader.Push(text.substr(at, step)), answer);
    AddParts(reader.Finish(), answer);
    return std::tuple(answer.reasoning, answer.content, reader.stopped_by().value_or(""));
  };
  for (const size_t step : {1, 2, 100}) {
    using Said = std::tuple<std::string, std::string, std::string>;
    EXPECT_EQ(read("<think>in xyz</think>a b in c", step), Said("in xyz", "a b ", "in"));
    EXPECT_EQ(read("<think>i</think>n xy", step), Said("i", "n xy", ""));
    EXPECT_EQ(read("never a mark, in words", step), Said("never a mark, ", "", "in"));
    EXPECT_EQ(read("never a mark, i</think>n xy", step), Said("never a mark, i", "n xy", ""));
    options.stops.include_in_output = true;
    EXPECT_EQ(read("<think>in</think>a xyz in", step), Said("in", "a xyz", "xyz"));
    options.stops.include_in_output = false;
    options.prompt = "<think></think>";
    EXPECT_EQ(read("a<think>in</think>b in", step), Said("in", "ab ", "in"));
    options.prompt = {};
  }
  options = ParserOptions("openai", "openai_gptoss");
  options.stops = {{"in"}, false, 0};
  EXPECT_EQ(read("<|channel|>analysis<|message|>in<|end|><|start|>assistant<|channel|>final"
                 "<|message|>a in b<|end|>",
                 1),
            std::tuple("in", "a ", "in"));
}

TEST(AnswerReaderTest, DeepNestingEndsAndStays) {
  std::mt19937 random(1);
  const std::string deep(100'000, '[');
  AnswerReaderOptions options = Hermes();
  for (const ToolParser& parser : ToolParsers()) {
    options.tools = &parser;
    (void)ReadAnswer(options, "[f(a=" + deep + ")]", 0, random);
    (void)ReadAnswer(options, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + deep, 0,
                     random);
    (void)ReadAnswer(options, "<|tool_call>call:f{a:" + deep + "}<tool_call|>", 0, random);
  }
}

TEST(ParserTableTest, NamesAreFoundAndOthersListThem) {
  for (const ToolParser& parser : ToolParsers()) EXPECT_EQ(FindToolParser(parser.name), &parser);
  EXPECT_EQ(FindToolParser("no"), nullptr);
  const auto none = ReasoningParserNamed("no", "reasoning-parser");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().param, "reasoning-parser");
  EXPECT_NE(none.error().message.find("qwen3"), std::string::npos);
}

TEST(ParserTableTest, TemplatesSuggestParsers) {
  const auto tool = [](std::string_view text) {
    const ToolParser* parser = SuggestToolParser(text);
    return parser == nullptr ? "" : parser->name;
  };
  EXPECT_EQ(tool("return <tool_call>{...}</tool_call>"), "hermes");
  EXPECT_EQ(tool("<tool_call>\n<function=x>"), "qwen3_coder");
  EXPECT_EQ(tool("<|start_header_id|> {\"name\": n, \"parameters\": p}"), "llama3_json");
  EXPECT_EQ(tool("[TOOL_CALLS]"), "mistral");
  EXPECT_EQ(tool("<|channel|>commentary to=functions."), "openai");
  EXPECT_EQ(tool("<｜DSML｜tool_calls> <｜DSML｜invoke"), "deepseek_v4");
  EXPECT_EQ(tool("<｜DSML｜function_calls>"), "deepseek_v32");
  EXPECT_EQ(tool("<|open|>tools<|sep|>"), "kimi_k3");
  EXPECT_EQ(tool("{% set mark = ']<]minimax[>[' %} <tool_call>"), "minimax_m3");
  EXPECT_EQ(tool("<|plamo:begin_tool_requests:plamo|>"), "plamo3");
  EXPECT_EQ(tool("{{ messages }}"), "");
  ASSERT_NE(SuggestReasoningParser("{% if enable_thinking %}<think>"), nullptr);
  EXPECT_EQ(SuggestReasoningParser("{% if enable_thinking %}<think>")->name, "qwen3");
  EXPECT_EQ(SuggestReasoningParser("<|channel|>analysis")->name, "openai_gptoss");
  EXPECT_EQ(SuggestReasoningParser("<|open|>think<|sep|>")->name, "kimi_k3");
  EXPECT_EQ(SuggestReasoningParser("{{ messages }}"), nullptr);
}

TEST(ParserTableTest, EveryParserThatIsSuggestedExists) {
  for (const char* mark : {"<minimax:tool_call>", "<seed:tool_call>", "<longcat_tool_call>",
                           "｜DSML｜ calls>", "｜DSML｜tool_calls>"}) {
    EXPECT_NE(SuggestToolParser(mark), nullptr) << mark;
  }
}

TEST(ParserTableTest, AFormatOfChannelsHasBothParsers) {
  const auto agree = [](std::string_view tools, std::string_view reasoning) {
    return CheckParsersAgree(FindToolParser(tools), FindReasoningParser(reasoning)).has_value();
  };
  EXPECT_TRUE(agree("openai", "openai_gptoss"));
  EXPECT_TRUE(agree("openai", ""));
  EXPECT_TRUE(agree("", "openai_gptoss"));
  EXPECT_TRUE(agree("hermes", "qwen3"));
  EXPECT_FALSE(agree("openai", "qwen3"));
  EXPECT_FALSE(agree("hermes", "openai_gptoss"));
}

}  // namespace
}  // namespace sluice
