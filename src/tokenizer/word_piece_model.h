// WordPiece: takes the longest token of a vocabulary from left to right, as BERT cuts words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/token_table.h"

namespace sluice {

// The `model` of a tokenizer.json.
struct WordPieceSpec {
  TokenTable vocabulary;
  std::string unk_token = "[UNK]";
  std::string prefix = "##";    // of a token that is not at the start of a word
  size_t max_characters = 100;  // a longer word becomes unk_token
};

// Thread safety: immutable.
class WordPieceModel {
 public:
  // kInvalidData if unk_token is not in the vocabulary.
  static Result<WordPieceModel> Create(WordPieceSpec spec);

  // Appends the ids of a word; only unk_token if some part of the word is not a token.
  void Encode(std::string_view word, const char* text_end, std::vector<int32_t>& ids) const;

  const TokenTable& vocabulary() const { return spec_.vocabulary; }

 private:
  explicit WordPieceModel(WordPieceSpec spec) : spec_(std::move(spec)) {}

  WordPieceSpec spec_;
  int32_t unk_id_ = -1;
};

}  // namespace sluice
