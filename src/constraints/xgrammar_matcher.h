// Matchers for xgrammar's grammars (docs/dependencies.md).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <xgrammar/xgrammar.h>

#include "base/work_budget.h"
#include "constraints/constraint.h"
#include "constraints/json_whitespace.h"
#include "constraints/string_counter.h"
#include "constraints/vocabulary.h"

namespace sluice {

// A vocabulary, and the characters that its tokens add to strings. Thread safety: immutable.
struct CountedVocabulary {
  explicit CountedVocabulary(Vocabulary of)
      : vocabulary(std::move(of)), lengths(vocabulary.tokens), whitespace(vocabulary) {}

  const Vocabulary vocabulary;
  const TokenLengths lengths;
  const WhitespaceTokens whitespace;
};

// A grammar, and the bounds of its strings (BoundedGrammar); empty if no strings are bounded.
struct MatchedGrammar {
  xgrammar::CompiledGrammar grammar;
  std::vector<StringBounds> bounds;
  // Whether answers are JSON whose white space the matcher limits (kMaxWhitespace) instead of the
  // grammar.
  bool bounds_whitespace = false;
};

// Returns a matcher whose calls each stay within `limits`. Does no work itself: the first call
// creates the state.
std::unique_ptr<TokenMatcher> NewXgrammarMatcher(
    std::shared_ptr<const MatchedGrammar> grammar,
    std::shared_ptr<const CountedVocabulary> vocabulary, const WorkLimits& limits);

}  // namespace sluice
