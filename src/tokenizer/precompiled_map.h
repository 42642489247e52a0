// The `Precompiled` normalizer: character replacements that sentencepiece has compiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// Format of a map: the size in bytes of a double array (4 bytes); the double array over bytes
// (units of 4 bytes); texts that each end with a zero byte. All numbers are little-endian. Leaves
// of the array are offsets into the texts. Thread safety: immutable.
class PrecompiledMap {
 public:
  // `base64`: the encoded map; "" for a map without replacements. kInvalidData if it is damaged.
  static Result<PrecompiledMap> Create(std::string_view base64);

  // Replaces clusters (a character with its marks) of fewer than 6 bytes as a whole, others
  // character by character. Like Hugging Face `tokenizers`, uses the replacement of the shortest
  // matching prefix. REQUIRES: valid UTF-8.
  std::string Normalize(std::string_view text) const;

  // Number of bytes of the longest replacement.
  size_t longest() const { return longest_; }

 private:
  // Returns the replacement of the shortest key that is a prefix of `chunk`.
  std::optional<std::string_view> Find(std::string_view chunk) const;

  std::vector<uint32_t> units_;
  std::string texts_;
  size_t longest_ = 0;
};

}  // namespace sluice
