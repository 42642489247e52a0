// Sets of code points, used for the character classes of split patterns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/unicode.h"

namespace sluice {

class CodePointSet {
 public:
  // Returns the set for a property name in \p{...}: a category ("Lu", "L", "Letter"), a script
  // ("Han") or "Any"; nullopt for an unknown name.
  static std::optional<CodePointSet> OfProperty(std::string_view name);
  // Returns the code points that have any of these property bits (unicode.h).
  static CodePointSet WithFlag(uint16_t flag);

  void Add(char32_t first, char32_t last) { Add(CodePointSet({{first, last}})); }
  void Add(const CodePointSet& other);
  void Intersect(CodePointSet other);
  void Complement();

  // Returns the text between the brackets of a PCRE2 character class that matches exactly this set.
  std::string ToPcre2() const;

  CodePointSet() = default;

 private:
  explicit CodePointSet(unicode::Ranges ranges) : ranges_(std::move(ranges)) {}

  unicode::Ranges ranges_;  // Sorted, disjoint and not adjacent.
};

}  // namespace sluice
