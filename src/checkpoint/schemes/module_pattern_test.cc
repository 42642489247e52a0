#include "checkpoint/schemes/module_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

bool GlobMatches(std::string_view pattern, std::string_view name) {
  const auto glob = NamePattern::Glob(pattern);
  EXPECT_TRUE(glob) << pattern;
  return glob && glob->Matches(name);
}

bool RegexMatches(std::string_view pattern, std::string_view name) {
  const auto regex = NamePattern::Regex(pattern);
  EXPECT_TRUE(regex) << pattern << ": " << regex.error().message;
  return regex && regex->Matches(name);
}

TEST(NamePatternTest, GlobsMatchWholeNames) {
  const struct {
    const char *pattern, *name;
    bool matches;
  } kCases[] = {
      {"", "", true},
      {"", "a", false},
      {"*k_proj", "model.layers.0.self_attn.k_proj", true},
      {"*k_proj", "model.layers.0.self_attn.k_proj.weight", false},
      {"vision_model*", "vision_model.patch", true},
      {"vision_model*", "my.vision_model", false},
      {"*.mlp.gate", "model.layers.1.mlp.gate", true},
      {"*.mlp.gate", "model.layers.1.mlp.gate_proj", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"layers.[0-3].x", "layers.2.x", true},
      {"layers.[0-3].x", "layers.4.x", false},
      {"layers.[!0-3].x", "layers.4.x", true},
      {"a[b", "a[b", true},
      {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
  };
  for (const auto& test : kCases)
    EXPECT_EQ(GlobMatches(test.pattern, test.name), test.matches)
        << test.pattern << " " << test.name;
}

TEST(NamePatternTest, RegularExpressionsMatchFromTheStart) {
  const struct {
    const char *pattern, *name;
    bool matches;
  } kCases[] = {
      {".*self_attn.*", "model.layers.0.self_attn.q_proj", true},
      {"self_attn", "model.self_attn", false},
      {"model", "model.layers", true},  // a matching prefix is enough
      {"model$", "model.layers", false},
      {"^model\\.layers\\.\\d+\\.mlp\\.(gate|up)_proj$", "model.layers.12.mlp.up_proj", true},
      {"^model\\.layers\\.\\d+\\.mlp\\.(gate|up)_proj$", "model.layers.x.mlp.up_proj", false},
      {"(?:a|bc)+d", "abcad", true},
      {"a{2,3}b", "aab", true},
      {"a{2,3}b", "aaab", true},
      {"a{2,3}b", "ab", false},
      {"a{2}b", "aab", true},
      {"a{1,}b", "aaaaab", true},
      {"[^.]+\\.x", "abc.x", true},
      {"[\\d_]+z", "1_2z", true},
      {"x*?y", "xxy", true},
      {"", "anything", true},
      {"a|", "b", true},
      {"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
      {"\\w+\\s?-", "ab -", true},
      {"(?!a)b", "b", true},
      {"^(?!.*vision).*_proj$", "model.layers.0.mlp.up_proj", true},
      {"^(?!.*vision).*_proj$", "vision_model.layers.0.mlp.up_proj", false},
      {"(?P<part>gate|up)_proj", "up_proj", true},
      {"model\\b", "model.layers", true},
      {"model\\b", "models", false},
      {"(?i)LM_Head", "lm_head", true},
      {"model.layers.(?:[0-9]|1[0-5])\\.", "model.layers.15.mlp", true},
      {"model.layers.(?:[0-9]|1[0-5])\\.", "model.layers.16.mlp", false},
      {".", "\u00e9", true},
      {".$", "\u00e9", true},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(RegexMatches(test.pattern, test.name), test.matches)
        << test.pattern << " " << test.name;
  }
}

TEST(NamePatternTest, RefusesWhatItDoesNotKnow) {
  for (const char* pattern :
       {"(a", "a)", "[a", "*a", "a**", "a\\1", "(a)\\1", "a{,3}", "a{3,2}", "\\", "(?(1)a)",
        "(?L)a", "((((((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))))))"}) {
    const auto regex = NamePattern::Regex(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kUnsupported) << pattern;
    EXPECT_THAT(regex.error().message, HasSubstr(pattern));
  }
  EXPECT_FALSE(NamePattern::Regex(std::string(10'000, 'a')));
}

// Patterns on which a backtracking engine would hang. NamePattern takes at most a few milliseconds
// per name.
TEST(NamePatternTest, NoPatternHangs) {
  std::string deep = "c";
  for (int i = 0; i < 30; ++i) deep.insert(0, "(?=(?:a|aa|a*)*").append(")a");
  for (const std::string& pattern :
       {std::string("(a*)*[bc]$"), std::string("(?:a|aa)+$"), std::string("(?:a|a?)+b$"),
        std::string("(((a{64}){64}){64})"), std::string("(?:(?:a*)*)*(?=(?:a|a)*c)"), deep}) {
    const auto regex = NamePattern::Regex(pattern);
    ASSERT_TRUE(regex) << pattern;
    EXPECT_FALSE(regex->Matches(std::string(300, 'a') + "bcd")) << pattern;
  }
  std::string stars;
  for (int i = 0; i < 500; ++i) stars += "*a";
  EXPECT_FALSE(GlobMatches(stars + "b", std::string(3000, 'a')));
}

TEST(ModuleListTest, NamesStandForWhatIsInsideAndForEverySpelling) {
  ModuleList list;
  ASSERT_TRUE(list.Add({"language_model.lm_head", "model.layers.0.mlp", "vision_model*",
                        "model.layers.1.mlp.gate", "re:.*layers\\.3\\..*",
                        "language_model.model.layers.5.*", "model.language_model.layers.7.mlp"},
                       ModuleList::Syntax::kRegexPrefix));
  const struct {
    const char* module;
    bool is_in;
  } kCases[] = {
      {"lm_head", true},
      {"model.layers.0.mlp.up_proj", true},
      {"model.layers.0.mlp2", false},
      {"model.layers.1.mlp.gate", true},
      {"model.layers.1.mlp.gate_proj", false},  // "mlp.gate" matches only whole components
      {"model.layers.3.self_attn.q_proj", true},
      {"model.layers.30.self_attn.q_proj", false},
      {"model.layers.5.mlp.up_proj", true},
      {"model.layers.7.mlp.up_proj", true},
      {"model.layers.6.mlp.up_proj", false},
      {"", false},
  };
  for (const auto& test : kCases) EXPECT_EQ(list.Contains(test.module), test.is_in) << test.module;
}

constexpr const char* kName = "model.layers.12.self_attn.q_proj";

bool KeyMatches(std::string_view pattern, std::string_view name = kName) {
  const auto parsed = NamePattern::PeftKey(pattern);
  EXPECT_TRUE(parsed) << pattern << ": " << parsed.error().message;
  return parsed && parsed->Matches(name);
}

// Matches what Python's re.match(r"(.*\.)?(PATTERN)$", name) does.
TEST(PeftKeyTest, MatchesNamesAndTheirEnds) {
  for (const char* pattern : {"q_proj",
                              "self_attn.q_proj",
                              "self_attn\\.q_proj",
                              kName,
                              "^model.*q_proj",
                              "q_proj$",
                              ".*q_proj",
                              ".*\\.(q|k)_proj",
                              "layers.1[0-3].self_attn.[qk]_proj",
                              "(?:v|q)_proj",
                              "layers\\.\\d+\\..*",
                              "layers.\\d{2}.self_attn.\\w+",
                              "k_proj|q_proj",
                              ".+",
                              "q_?pro{1}j",
                              "[^k]_proj",
                              "(layers|self_attn|12|q_proj|\\.)+",
                              ".*?q_proj",
                              "(a|.)*",
                              "((.*)*)*"}) {
    EXPECT_TRUE(KeyMatches(pattern)) << pattern;
  }
  for (const char* pattern :
       {"_proj", "proj", "q_pro", "k_proj", "^q_proj", "^layers.*", "self_attn", "layers.1[3-9].*",
        "q_proj.", "layers.\\d.self_attn.q_proj", "q_proj{2}", "[^q]_proj", "self_attn|layers",
        "x*"}) {
    EXPECT_FALSE(KeyMatches(pattern)) << pattern;
  }
  EXPECT_TRUE(KeyMatches("lm_head", "lm_head"));
  EXPECT_TRUE(KeyMatches("x*", ""));
}

TEST(PeftKeyTest, WhatIsNotRead) {
  for (const char* pattern :
       {"", "(", ")", "a)", "a)|(b", "[a", "*", "a**", "a{2,1}", "((a|b){255}){255}", "(?=a)",
        "a(?!b)", "(?<=a)b", "(?<!a)b", "\\", "(a)\\1", "[z-a]", "a{,3}"}) {
    const auto parsed = NamePattern::PeftKey(pattern);
    ASSERT_FALSE(parsed) << pattern;
    EXPECT_FALSE(parsed.error().message.empty());
  }
  EXPECT_FALSE(NamePattern::PeftKey(std::string(1025, 'a')));
}

// A pattern on which Python's own matcher hangs.
TEST(PeftKeyTest, TakesLittleTime) {
  EXPECT_FALSE(KeyMatches("((a*)*)*b", std::string(4096, 'a')));
}

}  // namespace
}  // namespace sluice
