// Sets of code points, for the character classes of split patterns.
#pragma once

#include <cstdint>
#include <memory>
#include <bitset>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/unicode.h"

namespace sluice {

class CodePointSet {
 public:
  CodePointSet() : bits_(std::make_unique<Bits>()) {}
  CodePointSet(const CodePointSet& other) : bits_(std::make_unique<Bits>(*other.bits_)) {}
  CodePointSet& operator=(const CodePointSet& other) {
    *bits_ = *other.bits_;
    return *this;
  }

  // The set of a property name as \p{...} takes it: a category ("Lu", "L", "Letter"), a script ("Han"), "Any", or nothing
  // if the name is not known.
  static std::optional<CodePointSet> OfProperty(std::string_view name);
  // The code points whose properties (unicode.h) have one of these bits.
  static CodePointSet WithFlag(uint16_t flag);

  bool Contains(char32_t c) const { return bits_->test(c); }
  void Add(char32_t first, char32_t last);
  void Add(const CodePointSet& other) { *bits_ |= *other.bits_; }
  void Intersect(const CodePointSet& other) { *bits_ &= *other.bits_; }
  void Complement() { bits_->flip(); }

  // The inside of a PCRE2 character class with exactly these code points.
  std::string ToPcre2() const;

 private:
  using Bits = std::bitset<unicode::kMaxCodePoint + 1>;

  std::unique_ptr<Bits> bits_;
};

}  // namespace sluice
