// The `pre_tokenizer` of a tokenizer.json: cuts a text into pieces, which are encoded separately.
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

// The pieces of a text. A step may replace the text.
struct Pieces {
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    bool at_start = false;  // The piece begins at the start of the whole input.
  };
  std::string_view text;  // Refers to the caller's text or to `owned`.
  std::string owned;
  std::vector<Piece> pieces;  // In order; none is empty.
};

// Supports ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace and
// sequences of them. Thread safety: immutable.
class PreTokenizer {
 public:
  // `value` may be null: the text is one piece.
  static Result<PreTokenizer> Parse(const json::Value* value);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Whether the last step, and no other, spells bytes as characters: then pieces can remain raw
  // bytes.
  bool EndsInByteLevel() const { return ends_in_byte_level_; }
  // Whether that last step keeps raw bytes. Must be called once before use.
  void SetKeepBytes(bool keep);

  // The known pattern that alone determines the pieces, so that Run need not be called; nullopt if
  // there is none.
  std::optional<SplitPattern> only_pattern() const { return only_pattern_; }
  // Whether the whole text is a single unchanged piece.
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
