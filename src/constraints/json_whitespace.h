// Limits the white space between the parts of JSON (kMaxWhitespace), because a model that writes
// only white space would never end its answer. If the grammar counted the white space, compiling
// would take twice as long.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "constraints/constraint.h"
#include "constraints/vocabulary.h"

namespace sluice {

// The tokens of a vocabulary that contain white space. Thread safety: immutable.
class WhitespaceTokens {
 public:
  explicit WhitespaceTokens(const Vocabulary& vocabulary);

  std::string_view TextOf(int32_t token) const;
  // Pairs (length, token) for the tokens that begin with white space, longest white space first.
  std::span<const std::pair<int32_t, int32_t>> leading() const { return leading_; }
  // Tokens that contain more than kMaxWhitespace consecutive white-space characters.
  std::span<const int32_t> long_ones() const { return long_; }

 private:
  const Vocabulary& vocabulary_;  // not owned
  std::vector<std::pair<int32_t, int32_t>> leading_;
  std::vector<int32_t> long_;
};

// Wraps a matcher of JSON: `matcher` decides everything except white space. REQUIRES: its answers
// are JSON texts.
std::unique_ptr<TokenMatcher> WithBoundedWhitespace(std::unique_ptr<TokenMatcher> matcher,
                                                    std::shared_ptr<const WhitespaceTokens> tokens);

}  // namespace sluice
