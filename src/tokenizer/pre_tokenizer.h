// The `pre_tokenizer` of a tokenizer.json: cuts a text into the pieces that are encoded one by one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/split_scanner.h"

namespace sluice {

// A text in pieces. A step may put another text in its place.
struct Pieces {
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    bool at_start = false;  // Begins where the whole input begins.
  };
  std::string_view text;  // Points to the caller's text or to `owned`.
  std::string owned;
  std::vector<Piece> pieces;  // In order; none is empty.
};

// ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace and sequences of
// them. Thread safety: immutable.
class PreTokenizer {
 public:
  // `value` may be null: the text is one piece.
  static Result<PreTokenizer> Parse(const json::Value* value);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Whether the last step, and no other, spells bytes as characters: then the pieces may stay
  // bytes.
  bool EndsInByteLevel() const { return ends_in_byte_level_; }
  // Must be called once before use: whether that last step leaves the bytes as they are.
  void SetKeepBytes(bool keep);

  // If the pieces are just those of one known pattern, that pattern: then there is no need to call
  // Run.
  std::optional<SplitPattern> only_pattern() const { return only_pattern_; }
  // Whether the whole text is one piece as it stands.
  bool IsIdentity() const { return identity_; }

  // REQUIRES: valid UTF-8 that outlives the result.
  void Run(std::string_view text, bool at_start, Pieces& pieces) const;

  class Step;

 private:
  PreTokenizer();

  std::vector<std::unique_ptr<Step>> steps_;
  bool ends_in_byte_level_ = false;
  bool identity_ = false;
  std::optional<SplitPattern> only_pattern_;
};

}  // namespace sluice
