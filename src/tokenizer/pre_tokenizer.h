// The `pre_tokenizer` of a tokenizer.json: cuts a text into pieces that are encoded separately.
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

// The pieces of a text. A step may replace the text by a rewritten one.
struct Pieces {
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    bool at_start = false;  // The piece begins at the start of the whole input.
  };
  std::string_view text;  // Views the caller's text or `owned`.
  std::string owned;
  std::vector<Piece> pieces;  // In text order; none is empty.
};

// Supports ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace and
// sequences of them. Thread safety: immutable.
class PreTokenizer {
 public:
  // `value` may be null; the text is then one piece.
  static Result<PreTokenizer> Parse(const json::Value* value);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Whether the last step, and no other, maps bytes to characters (ByteLevel). If so, SetKeepBytes
  // can skip that mapping.
  bool EndsInByteLevel() const { return ends_in_byte_level_; }
  // Sets whether the last step leaves the pieces as raw bytes. Must be called once before use.
  void SetKeepBytes(bool keep);

  // The known pattern if nothing else affects the pieces; callers can then skip Run. Otherwise
  // nullopt.
  std::optional<SplitPattern> only_pattern() const { return only_pattern_; }
  // Whether every text is a single unchanged piece.
  bool IsIdentity() const { return identity_; }

  // Cuts `text` into pieces. REQUIRES: valid UTF-8 that outlives the result.
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
