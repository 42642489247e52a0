// The `decoder` of a tokenizer.json: converts spellings of tokens to text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Supports ByteLevel, Metaspace, WordPiece, ByteFallback, Fuse, Replace, Strip and sequences of
// them. Thread safety: immutable.
class Decoder {
 public:
  // `value` may be null; tokens are then joined with spaces.
  static Result<Decoder> Parse(const json::Value* value);
  Decoder(Decoder&&) noexcept;
  ~Decoder();

  // Whether the decoder consists of ByteLevel only. The text is then the concatenation of the
  // tokens' bytes (see BytesOf).
  bool IsByteLevel() const { return is_byte_level_; }

  std::string Decode(std::vector<std::string> tokens) const;

  // Returns the bytes of a token that is not the first or the last one.
  std::string BytesOf(std::string_view spelling) const;

  class Step;

 private:
  Decoder();

  std::vector<std::unique_ptr<Step>> steps_;
  bool is_byte_level_ = false;
  bool has_byte_fallback_ = false;
  bool present_ = false;
};

}  // namespace sluice
