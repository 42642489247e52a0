// WordPiece: cuts words as BERT does, from left to right, taking the longest token of the
// vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/token_table.h"

namespace sluice {

// The `model` of a tokenizer.json, parsed.
struct WordPieceSpec {
  TokenTable vocabulary;
  std::string unk_token = "[UNK]";
  std::string prefix = "##";    // marks a token that is not at the start of a word
  size_t max_characters = 100;  // words with more characters become unk_token
};

// Thread safety: immutable.
class WordPieceModel {
 public:
  // kInvalidData if unk_token is not in the vocabulary.
  static Result<WordPieceModel> Create(WordPieceSpec spec);

  // Appends the ids of a word. If some part of the word is not a token, appends only unk_token.
  void Encode(std::string_view word, const char* text_end, std::vector<int32_t>& ids) const;

  const TokenTable& vocabulary() const { return spec_.vocabulary; }

 private:
  explicit WordPieceModel(WordPieceSpec spec) : spec_(std::move(spec)) {}

  WordPieceSpec spec_;
  int32_t unk_id_ = -1;
};

}  // namespace sluice
