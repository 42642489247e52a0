#include "models/module_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr const char* kName = "model.layers.12.self_attn.q_proj";

bool Matches(std::string_view pattern, std::string_view name = kName) {
  const auto parsed = ModulePattern::Parse(pattern);
  EXPECT_TRUE(parsed) << pattern << ": " << parsed.error().message;
  return parsed && parsed->Matches(name);
}

// What Python's re.match(r"(.*\.)?(PATTERN)$", name) finds.
TEST(ModulePatternTest, MatchesNamesAndTheirEnds) {
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
    EXPECT_TRUE(Matches(pattern)) << pattern;
  }
  for (const char* pattern :
       {"_proj", "proj", "q_pro", "k_proj", "^q_proj", "^layers.*", "self_attn", "layers.1[3-9].*",
        "q_proj.", "layers.\\d.self_attn.q_proj", "q_proj{2}", "[^q]_proj", "self_attn|layers",
        "x*"}) {
    EXPECT_FALSE(Matches(pattern)) << pattern;
  }
  EXPECT_TRUE(Matches("lm_head", "lm_head"));
  EXPECT_TRUE(Matches("x*", ""));
}

TEST(ModulePatternTest, WhatIsNotRead) {
  for (const char* pattern : {"", "(", ")", "a)", "[a", "*", "a**", "a{", "a{2,1}", "a{9999}",
                              "(?=a)", "\\b", "\\", "\\1", "((((a))))", "[z-a]"}) {
    const auto parsed = ModulePattern::Parse(pattern);
    ASSERT_FALSE(parsed) << pattern;
    EXPECT_FALSE(parsed.error().message.empty());
  }
  EXPECT_FALSE(ModulePattern::Parse(std::string(ModulePattern::kMaxBytes + 1, 'a')));
}

// A pattern that takes Python's own matcher for ever.
TEST(ModulePatternTest, TakesLittleTime) {
  EXPECT_FALSE(Matches("((a*)*)*b", std::string(ModulePattern::kMaxName, 'a')));
}

}  // namespace
}  // namespace sluice
