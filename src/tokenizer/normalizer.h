// The `normalizer` of a tokenizer.json: rewrites a text before it is cut into pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Supports NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer,
// Precompiled and sequences of them. Thread safety: immutable.
class Normalizer {
 public:
  // `value` may be null; the normalizer then changes nothing.
  static Result<Normalizer> Parse(const json::Value* value);
  Normalizer(Normalizer&&) noexcept;
  ~Normalizer();

  // Whether the normalizer leaves every text unchanged.
  bool IsIdentity() const { return steps_.empty(); }
  // Rewrites `text`. If given, `at_start` is cleared when the first character is removed: in this
  // case, the text does not count as the start of the input. REQUIRES: valid UTF-8.
  std::string Normalize(std::string_view text, bool* at_start = nullptr) const;

  class Step;

 private:
  Normalizer();

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace sluice
