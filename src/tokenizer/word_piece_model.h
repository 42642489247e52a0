// WordPiece: the longest tokens of a vocabulary from left to right, as BERT cuts words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/token_table.h"

namespace sluice {

// What the `model` of a tokenizer.json says.
struct WordPieceSpec {
  TokenTable vocabulary;
  std::string unk_token = "[UNK]";
  std::string prefix = "##";    // of a token inside a word
  size_t max_characters = 100;  // a longer word is unknown as a whole
};

// Thread safety: immutable.
class WordPieceModel {
 public:
  // kInvalidData if unk_token is not in the vocabulary.
  static Result<WordPieceModel> Create(WordPieceSpec spec);

  // Appends the ids of one word: that of unk_token alone if some part of it is no token.
  void Encode(std::string_view word, const char* text_end, std::vector<int32_t>& ids) const;

  const TokenTable& vocabulary() const { return spec_.vocabulary; }

 private:
  explicit WordPieceModel(WordPieceSpec spec) : spec_(std::move(spec)) {}

  WordPieceSpec spec_;
  int32_t unk_id_ = -1;
};

}  // namespace sluice
