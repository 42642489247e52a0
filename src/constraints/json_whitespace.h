// Bounds the white space in a row between the parts of JSON (kMaxWhitespace): a model that writes
// nothing else would never end its answer. A grammar that counts takes twice as long to compile.
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

// The tokens of a vocabulary with white space in them. Thread safety: immutable.
class WhitespaceTokens {
 public:
  explicit WhitespaceTokens(const Vocabulary& vocabulary);

  std::string_view TextOf(int32_t token) const;
  // By the length of the white space that they begin with, longest first; none without any.
  std::span<const std::pair<int32_t, int32_t>> leading() const { return leading_; }
  // Those with more than kMaxWhitespace of it in a row anywhere.
  std::span<const int32_t> long_ones() const { return long_; }

 private:
  const Vocabulary& vocabulary_;  // outlives it
  std::vector<std::pair<int32_t, int32_t>> leading_;
  std::vector<int32_t> long_;
};

// A matcher of JSON, of which `matcher` says all else. REQUIRES: its answers are JSON texts.
std::unique_ptr<TokenMatcher> WithBoundedWhitespace(std::unique_ptr<TokenMatcher> matcher,
                                                    std::shared_ptr<const WhitespaceTokens> tokens);

}  // namespace sluice
