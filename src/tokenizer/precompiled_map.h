// The `Precompiled` normalizer: replacements of characters as sentencepiece compiles them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// A double array over bytes (four bytes its size, then units of four bytes, all little-endian),
// whose leaves are places in the texts behind it, each of which ends with a zero byte.
// Thread safety: immutable.
class PrecompiledMap {
 public:
  // `base64`: of the above; "" for a map without replacements. kInvalidData if it is damaged.
  static Result<PrecompiledMap> Create(std::string_view base64);

  // Replaces the clusters (a character with the marks that belong to it) of fewer than 6 bytes, and
  // the characters of others: by the text of the shortest key that each begins with, as Hugging
  // Face `tokenizers` does. REQUIRES: valid UTF-8.
  std::string Normalize(std::string_view text) const;

  // Bytes of the longest replacement.
  size_t longest() const { return longest_; }

 private:
  // The replacement of what `chunk` begins with.
  std::optional<std::string_view> Find(std::string_view chunk) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  size_t longest_ = 0;
};

}  // namespace sluice
