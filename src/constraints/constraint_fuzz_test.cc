// Runs the check of the fuzz targets on random grammars, structural tags and regexes, and on texts
// that once crashed the process. Each must be refused, or compiled and enforced, within the limits
// of the engine.
#include "constraints/constraint_fuzz.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <future>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "constraints/constraint_compiler.h"

namespace sluice {
namespace {

double FuzzedSeconds(ConstraintKind kind, const std::string& text) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  FuzzConstraint(kind, reinterpret_cast<const uint8_t*>(text.data()), text.size());
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) +
         static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

// Random texts of each kind, mostly well formed: few rules with random references to each other.
class RandomConstraint {
 public:
  explicit RandomConstraint(uint32_t seed) : random_(seed) {}

  std::string Make(ConstraintKind kind) {
    switch (kind) {
      case ConstraintKind::kEbnf: return Grammar("root", " ::= ", false);
      case ConstraintKind::kLark: return Grammar("start", ": ", true);
      case ConstraintKind::kRegex: return Regex(0);
      case ConstraintKind::kStructuralTag:
        return fmt::format(R"({{"type":"structural_tag","format":{}}})", Format(0));
      case ConstraintKind::kJsonSchema: break;
    }
    return "{}";
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <size_t N>
  const char* OneOf(const char* const (&choices)[N]) {
    return choices[Below(N)];
  }

  std::string Quantifier(bool is_lark) {
    const char* const ebnf[] = {"", "", "", "*", "+", "?", "{0,}", "{2}", "{1,3}", "{0,300}"};
    const char* const lark[] = {"", "", "", "*", "+", "?", "~2", "~0..3", "~1..300", "*"};
    return is_lark ? OneOf(lark) : OneOf(ebnf);
  }

  std::string Element(const char* first, int depth, bool is_lark) {
    const char* const ebnf[] = {"\"a\"", "\"\"", "[a-z]", "[^a]", "\"é\\n\"", "[0-9]"};
    const char* const lark[] = {"\"a\"", "/[a-z]+/", "\"a\"..\"f\"", "/x*/", "\"B\"i", "/./"};
    switch (Below(depth > 3 ? 2 : 3)) {
      case 0: return is_lark ? OneOf(lark) : OneOf(ebnf);
      case 1: return Below(6) == 0 ? first : fmt::format("r{}", Below(5));
      default: return "(" + Choice(first, depth + 1, is_lark) + ")";
    }
  }

  std::string Choice(const char* first, int depth, bool is_lark) {
    std::string choice;
    const int num_choices = 1 + Below(3);
    for (int i = 0; i < num_choices; ++i) {
      choice += i > 0 ? " | " : "";
      const int num_elements = 1 + Below(Below(8) == 0 ? 12 : 3);
      for (int j = 0; j < num_elements; ++j)
        choice += (j > 0 ? " " : "") + Element(first, depth, is_lark) + Quantifier(is_lark);
    }
    return choice;
  }

  std::string Grammar(const char* first, const char* defines, bool is_lark) {
    std::string grammar = first + (defines + Choice(first, 0, is_lark)) + "\n";
    for (int i = 0; i < 5; ++i)
      grammar += fmt::format("r{}{}{}\n", i, defines, Choice(first, 0, is_lark));
    if (is_lark && Below(4) == 0) grammar += "%ignore /[ ]+/\n";
    return grammar;
  }

  std::string Regex(int depth) {
    const char* const atoms[] = {"a", "\\d", "[a-z]", "[^x]", ".", "\\w", "é", "(?:ab)"};
    const char* const quantifiers[] = {"", "", "*", "+", "?", "{0,9}", "{3}", "{2,}", "{0,200}"};
    std::string regex;
    const int count = 1 + Below(4);
    for (int i = 0; i < count; ++i) {
      if (i > 0 && Below(4) == 0) regex += "|";
      regex += depth < 5 && Below(3) == 0 ? "(" + Regex(depth + 1) + ")" : OneOf(atoms);
      regex += OneOf(quantifiers);
    }
    return regex;
  }

  std::string Quoted(const std::string& text) { return json::Write(json::Value(text)); }

  std::string Formats(int depth) {
    std::string formats;
    const int count = 1 + Below(3);
    for (int i = 0; i < count; ++i) formats += (i > 0 ? "," : "") + Format(depth + 1);
    return formats;
  }
  std::string Tag(int depth) {
    return fmt::format(R"({{"type":"tag","begin":"<{}>","content":{},"end":"</{}>"}})",
                       "ab"[Below(2)], Format(depth + 1), "ab"[Below(2)]);
  }
  std::string Format(int depth) {
    switch (Below(depth > 4 ? 4 : 10)) {
      case 0: return R"({"type":"const_string","value":"ab"})";
      case 1: return R"({"type":"any_text"})";
      case 2: return fmt::format(R"({{"type":"regex","pattern":{}}})", Quoted(Regex(3)));
      case 3:
        return fmt::format(R"({{"type":"grammar","grammar":{}}})",
                           Quoted(Grammar("root", " ::= ", false)));
      case 4: return Tag(depth);
      case 5: return fmt::format(R"({{"type":"sequence","elements":[{}]}})", Formats(depth));
      case 6: return fmt::format(R"({{"type":"or","elements":[{}]}})", Formats(depth));
      case 7:
        return fmt::format(R"({{"type":"{}","content":{}}})", Below(2) == 0 ? "star" : "plus",
                           Format(depth + 1));
      case 8:
        return R"({"type":"json_schema","json_schema":{"$ref":"#/$defs/a","$defs":)"
               R"({"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}})";
      default:
        return fmt::format(
            R"({{"type":"triggered_tags","triggers":["<a>"],"tags":[{}],"at_least_one":{}}})",
            Tag(depth), Below(2) == 0 ? "true" : "false");
    }
  }

  std::mt19937 random_;
};

// The environment variable SLUICE_RANDOM_CONSTRAINTS is the number of texts of each kind.
TEST(ConstraintFuzzTest, RandomConstraintsStayWithinTheirLimits) {
  const char* wanted = std::getenv("SLUICE_RANDOM_CONSTRAINTS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 8;
  constexpr ConstraintKind kKinds[] = {ConstraintKind::kEbnf, ConstraintKind::kLark,
                                       ConstraintKind::kRegex, ConstraintKind::kStructuralTag};
  for (const ConstraintKind kind : kKinds) {
    double most = 0, all = 0;
    for (int i = 0; i < count; ++i) {
      const std::string text = RandomConstraint(static_cast<uint32_t>(i)).Make(kind);
      const double seconds = FuzzedSeconds(kind, text);
      // Compiling stops after 2 s of thread time, a call of the matcher after 0.25 s.
      EXPECT_LT(seconds, 10.0) << text;
      most = std::max(most, seconds);
      all += seconds;
    }
    fmt::print("{} texts of kind {}: {:.3f} s at most, {:.1f} s in all\n", count,
               static_cast<int>(kind), most, all);
  }
}

// The analysis of rules (grammar_rules.h) refuses most of these. The engine must survive these
// grammars even without the analysis: it also makes rules from parts of a structural tag that
// grammar_rules.h does not check.
TEST(ConstraintFuzzTest, WhatRecursesWithoutEndOrDeeplyIsRefused) {
  std::string chain = "root ::= r0\n", nested = "\"a\"",
              lists = "root ::= ", tag = R"({"type":"any_text"})";
  for (int i = 0; i < 20'000; ++i)
    chain += fmt::format("r{} ::= \"a\" r{} \"b\" | r{}\n", i, i + 1, i + 1);
  chain += "r20000 ::= \"c\"\n";
  for (int i = 0; i < 5'000; ++i) nested.insert(0, "(").append(")*");
  for (int i = 0; i < 20'000; ++i) lists += "(";
  for (int i = 0; i < 400; ++i) tag.insert(0, R"({"type":"star","content":)").append("}");
  const std::pair<ConstraintKind, std::string> texts[] = {
      {ConstraintKind::kEbnf, "root ::= (root){0,}"},
      {ConstraintKind::kEbnf, "root ::= a{1,}\na ::= b{2,}\nb ::= a{3,}"},
      {ConstraintKind::kEbnf, chain},
      {ConstraintKind::kEbnf, "root ::= " + nested},
      {ConstraintKind::kEbnf, lists},
      {ConstraintKind::kEbnf, "root ::= \"a\"" + std::string(60'000, '*')},
      {ConstraintKind::kLark, "start: start*"},
      {ConstraintKind::kLark, "start: " + nested},
      {ConstraintKind::kLark, "start: A\nA: B+\nB: A~2..9"},
      {ConstraintKind::kRegex, std::string(30'000, '(') + "a" + std::string(30'000, ')')},
      {ConstraintKind::kRegex,
       std::string(63, '(') + "a" + std::string(63, ')') + std::string(50'000, '*')},
      {ConstraintKind::kRegex, "(((((((a*)*)*)*){0,99}){0,99}){0,99})*"},
      {ConstraintKind::kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"grammar","grammar":"root ::= (root){0,}"}})"},
      {ConstraintKind::kStructuralTag, R"({"type":"structural_tag","format":)" + tag + "}"},
  };
  for (const auto& [kind, text] : texts) FuzzedSeconds(kind, text);
}

// On the compiler's threads, the same text is an error and does not end the process.
TEST(ConstraintFuzzTest, TheCompilersThreadsRefuseIt) {
  ConstraintCompiler compiler([] { return MakeXgrammarEngine(ByteVocabulary()); }, 2, 1 << 20);
  for (const char* text : {"root ::= (root){0,}", "root ::= a{2,}\na ::= root{3}"}) {
    std::promise<std::string> error;
    compiler.Compile({ConstraintKind::kEbnf, text}, [&](const ConstraintCompiler::Compiled& done) {
      error.set_value(done ? "" : done.error().message);
    });
    EXPECT_NE(error.get_future().get(), "") << text;
  }
}

}  // namespace
}  // namespace sluice
