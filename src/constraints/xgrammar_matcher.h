// Matchers of xgrammar's grammars (docs/dependencies.md).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <xgrammar/xgrammar.h>

#include "constraints/constraint.h"
#include "constraints/string_counter.h"
#include "constraints/vocabulary.h"
#include "constraints/work_budget.h"

namespace sluice {

// A vocabulary, and what its tokens add to strings. Thread safety: immutable.
struct CountedVocabulary {
  explicit CountedVocabulary(Vocabulary of)
      : vocabulary(std::move(of)), lengths(vocabulary.tokens) {}

  const Vocabulary vocabulary;
  const TokenLengths lengths;
};

// A grammar and the bounds of its strings (BoundedGrammar); none: of no string.
struct MatchedGrammar {
  xgrammar::CompiledGrammar grammar;
  std::vector<StringBounds> bounds;
};

// Each call keeps to `limits`.
std::unique_ptr<TokenMatcher> NewXgrammarMatcher(
    std::shared_ptr<const MatchedGrammar> grammar,
    std::shared_ptr<const CountedVocabulary> vocabulary, const WorkLimits& limits);

}  // namespace sluice
