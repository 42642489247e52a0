// Counts the characters of a JSON string while it is written byte by byte or token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// Bounds in characters as JSON Schema counts them: code points of the unescaped string.
struct StringBounds {
  static constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

  int32_t least = 0, most = kUnbounded;

  bool operator==(const StringBounds&) const = default;
};

// Counts the characters of a string, starting after its opening quote. An escape counts as one from
// its backslash on; the two escapes of a surrogate pair count as one together.
class StringCounter {
 public:
  // Returns false if the byte is the closing quote.
  bool Take(unsigned char byte);
  int32_t count() const { return count_; }
  // Whether the position is outside of escapes, and not after an escape that may be half of a pair.
  bool is_plain() const { return stage_ == Stage::kPlain && !is_behind_high_; }

 private:
  enum class Stage : uint8_t { kPlain, kBackslash, kDigits };

  int32_t count_ = 0;
  Stage stage_ = Stage::kPlain;
  uint8_t num_digits_ = 0;
  uint16_t digits_ = 0;
  bool is_behind_high_ = false;  // whether the previous escape was the first half of a surrogate
                                 // pair
  bool is_maybe_low_ = false;    // if this escape turns out to be the second half, it is not
                                 // counted
};

// The number of characters that each token adds to a string whose counter is plain. Thread safety:
// immutable.
class TokenLengths {
 public:
  explicit TokenLengths(const std::vector<std::string>& tokens);

  // Number of characters up to the closing quote, or to the end of the token.
  int32_t characters(int32_t token) const { return characters_[static_cast<size_t>(token)]; }
  // Clears in `mask` the tokens that add more than `most` characters.
  void KeepAtMost(int32_t most, std::span<uint32_t> mask) const;
  // Tokens that contain a quote, escaped or not.
  std::span<const int32_t> with_quote() const { return with_quote_; }

 private:
  // There are so many tokens of at most this many bytes that a mask is cheaper than a list.
  static constexpr int32_t kShort = 16;

  std::vector<int32_t> characters_;
  std::vector<int32_t> long_;  // tokens of more than kShort characters, longest first
  std::vector<std::vector<uint32_t>> at_most_;  // masks of tokens with at most 0 to kShort
                                                // characters
  std::vector<int32_t> with_quote_;
};

}  // namespace sluice
