// Unigram: cuts a text into the tokens with the highest sum of scores, like sentencepiece.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/token_table.h"

namespace sluice {

// The `model` of a tokenizer.json, parsed.
struct UnigramSpec {
  TokenTable vocabulary;
  std::vector<double> scores;  // log probabilities, indexed by id
  int64_t unk_id = -1;         // -1: not given
  // Encodes an unknown character as "<0x41>" and the like, if the vocabulary has these tokens.
  bool byte_fallback = false;
};

// In addition to the vocabulary, each token takes four bytes, and eight more for its score. Thread
// safety: immutable.
class UnigramModel {
 public:
  // kInvalidData if unk_id is not in the vocabulary.
  static Result<UnigramModel> Create(UnigramSpec spec);

  // Appends the ids of a piece. If two segmentations have the same sum, the segmentation whose last
  // token begins first is chosen. Time is proportional to the piece's length times the length of
  // the longest matching token, and is limited by the EncodeBudget.
  void Encode(std::string_view piece, const char* text_end, std::vector<int32_t>& ids) const;

  const TokenTable& vocabulary() const { return spec_.vocabulary; }

 private:
  explicit UnigramModel(UnigramSpec spec) : spec_(std::move(spec)) {}

  // Calls visit(id, bytes) for every token that is a prefix of `text`, shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit&& visit) const;
  // Appends the id of a token of the best segmentation. Unknown text becomes unk_id or byte tokens.
  void AppendToken(std::string_view token, std::vector<int32_t>& ids) const;

  UnigramSpec spec_;
  double unk_score_ = 0;
  std::vector<int32_t> sorted_;             // ids sorted by the text of the piece
  std::array<uint32_t, 257> first_byte_{};  // indexed by byte: offset in sorted_ of the first
                                            // piece that begins with it
  std::array<int32_t, 256> byte_ids_{};     // indexed by byte: id of "<0x41>" etc., or -1
};

}  // namespace sluice
