// Search patterns: regular expressions and plain strings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// A part of a text: a match, or the text between two matches.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// The pattern of a Split or Replace step: {"String": ...} or {"Regex": ...}.
// Thread safety: Find may be called by several threads at the same time.
class Pattern {
 public:
  // `where`: the name of the step for error messages.
  static Result<Pattern> Parse(const json::Value* value, std::string_view where);
  static Pattern OfString(std::string text);
  static Result<Pattern> OfRegex(std::string_view regex);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Cuts `text` into matches and the parts between them, in order and without gaps; matches may be
  // empty. Once the EncodeBudget is exceeded, the rest of the text counts as unmatched. REQUIRES:
  // valid UTF-8.
  void Find(std::string_view text, std::vector<Span>& spans) const;

  // Replaces every match in `text`.
  std::string Replace(std::string_view text, std::string_view replacement) const;
  // Upper bound of the factor by which Replace lengthens a text; at least 1.
  size_t Growth(std::string_view replacement) const;

 private:
  struct Compiled;
  Pattern();

  std::string string_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace sluice
