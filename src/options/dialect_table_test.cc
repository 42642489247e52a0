#include "options/dialect_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"
#include "options/dialect_notes.h"

namespace sluice::options {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<DialectTable> Parse(std::string_view text) {
  const DialectFile file{"x.txt", text};
  return ParseDialects({&file, 1});
}

TEST(DialectTable, TheFilesThatAreCompiledInCanBeRead) {
  const auto table = ParseDialects(DialectFiles());
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_GT(table->options.size(), 250);
}

TEST(DialectTable, RowsOfOptions) {
  const auto table = Parse(
      "# a comment\nreason r: because of it\n\n[Group of rows: serve, bench latency]\n"
      "one | no effect: r | flag | Help: with a colon.\n"
      "two flag:--deux -t|--to trtllm:--zwei | refused: r | choice a|b = a | Help. | accepts b | "
      "secret | value optional | retired before 1.2: now --three\n"
      "dialect trtllm-serve\nthree | refused: r | integer = 2 | Help. | range 1 9\n");
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(table->options.size(), 3);
  const Option& one = table->options[0];
  EXPECT_EQ(one.group, "Group of rows");
  EXPECT_EQ(one.commands, kServe | kBenchLatency);
  EXPECT_EQ(one.effect, Effect::kNoEffect);
  EXPECT_EQ(one.reason, "because of it");
  EXPECT_EQ(one.default_value, "false");
  EXPECT_EQ(one.help, "Help: with a colon.");
  const Option& two = table->options[1];
  EXPECT_EQ(two.name, "two");
  EXPECT_EQ(two.flag, "deux");
  EXPECT_EQ(two.aliases, "-t|--to");
  EXPECT_EQ(two.trtllm, "--zwei");
  EXPECT_EQ(two.effect, Effect::kRefused);
  EXPECT_EQ(two.type, Type::kChoice);
  EXPECT_EQ(two.choices, "a|b");
  EXPECT_EQ(two.default_value, "a");
  EXPECT_EQ(two.words, "b");
  EXPECT_TRUE(two.secret && two.value_optional);
  EXPECT_EQ(two.retired, "before 1.2: now --three");
  EXPECT_EQ(two.dialects, kAllDialects);
  const Option& three = table->options[2];
  EXPECT_EQ(three.dialects, DialectBit(Dialect::kTrtllm));
  EXPECT_EQ(three.range.min, 1);
  EXPECT_EQ(three.range.max, 9);
}

TEST(DialectTable, MistakesNameTheLine) {
  const std::string head = "reason r: because\n[G: serve]\n";
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"one | no effect: r | flag | H.\n", "x.txt:1: expected a section"},
           {"reason r\n", "x.txt:1: expected reason NAME: TEXT"},
           {"reason r: a\nreason r: b\n", "x.txt:2: reason r is defined twice"},
           {"[G: serve\n", "x.txt:1: expected ]"},
           {"[G: swim]\n", "x.txt:1: unknown command 'swim'"},
           {"[keys]\n", "x.txt:1: unknown section 'keys'"},
           {head + "one | no effect: r\n", "x.txt:3: expected at least 4 columns, found 2"},
           {head + "one | no effect: s | flag | H.\n", "x.txt:3: unknown reason 's'"},
           {head + "one | ignored: r | flag | H.\n", "x.txt:3: expected EFFECT: REASON"},
           {head + "one | acts: r | flag | H.\n", "x.txt:3: an option that acts"},
           {head + "one two | no effect: r | flag | H.\n", "x.txt:3: expected a flag, found 'two'"},
           {head + "one | no effect: r | colour | H.\n", "x.txt:3: unknown type 'colour'"},
           {head + "one | no effect: r | flag | H. | retired\n", "x.txt:3: unknown attribute"},
           {head + "one | no effect: r | integer | H. | range 1 x\n", "x.txt:3: expected a number"},
           {head + "one | no effect: r | flag | H.\n\none | no effect: r | flag | H.\n",
            "x.txt:5: one is listed twice"},
           {"reason r: because\n[environment]\nA | no effect: r\nA | no effect: r\n",
            "x.txt:4: A is listed twice"},
           {"reason r: because\n[environment]\nA | no effect: r | flag\n",
            "x.txt:3: expected 2 columns"},
       }) {
    const auto table = Parse(text);
    ASSERT_FALSE(table) << text;
    EXPECT_EQ(table.error().code, ErrorCode::kInvalidData);
    EXPECT_THAT(table.error().message, StartsWith(message));
  }
}

TEST(DialectTable, MappedKeysNameOptions) {
  int mapped = 0;
  for (const DialectKey& key : Dialects().yaml_keys) {
    if (key.effect != Effect::kMapped) continue;
    EXPECT_EQ(Find(key.text).name, key.text);
    ++mapped;
  }
  EXPECT_GT(mapped, 20);
}

// tests/data/options holds the options of the recorded vLLM release.
TEST(DialectTable, RetiredOptionsAreThoseThatTheRecordedReleaseLacks) {
  const auto text = ReadFile(SourcePath("tests/data/options/vllm_serve.json"), 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  const json::Value recorded = *json::Parse(*text);
  std::set<std::string> names;
  for (const json::Value& option : recorded.as_array()) {
    for (const json::Value& name : option.Find("names")->as_array()) names.insert(name.as_string());
  }
  for (const Option& option : Dialects().options) {
    if ((option.commands & kServe) == 0 || option.dialects != kAllDialects ||
        option.name == "ep-size") {  // an option of trtllm-serve that exists in all dialects
      continue;
    }
    const std::string flag = "--" + std::string(FlagName(option));
    EXPECT_NE(names.contains(flag), !option.retired.empty()) << flag;
  }
}

TEST(Variables, TheLongestNameCounts) {
  EXPECT_EQ(FindVariable("VLLM_API_KEY")->effect, Effect::kActs);
  EXPECT_EQ(FindVariable("VLLM_ENABLE_V1_MULTIPROCESSING")->name, "VLLM_ENABLE_V1_MULTIPROCESSING");
  EXPECT_EQ(FindVariable("VLLM_ENABLE_FUSED_MOE_X")->name, "VLLM_ENABLE_FUSED_MOE_*");
  EXPECT_EQ(FindVariable("VLLM_ENABLE_X")->name, "VLLM_ENABLE_*");
  EXPECT_EQ(FindVariable("VLLM_BOGUS"), nullptr);
}

}  // namespace
}  // namespace sluice::options
