// Unigram: the tokens whose scores add up to the most, as sentencepiece cuts a text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/token_table.h"

namespace sluice {

// What the `model` of a tokenizer.json says.
struct UnigramSpec {
  TokenTable vocabulary;
  std::vector<double> scores;  // log probabilities, by id
  int64_t unk_id = -1;         // -1: none is given
  bool byte_fallback =
      false;  // what is unknown becomes "<0x41>" and the like, where they are there
};

// Thread safety: immutable. Memory: beside the vocabulary four bytes a token, and eight of its
// score.
class UnigramModel {
 public:
  // kInvalidData if unk_id is not in the vocabulary.
  static Result<UnigramModel> Create(UnigramSpec spec);

  // Appends the ids of one piece. Of two ways with the same sum the one counts whose last token
  // begins first. Time is linear in the piece, times the length of the longest token that fits,
  // within the EncodeBudget.
  void Encode(std::string_view piece, const char* text_end, std::vector<int32_t>& ids) const;

  const TokenTable& vocabulary() const { return spec_.vocabulary; }

 private:
  explicit UnigramModel(UnigramSpec spec) : spec_(std::move(spec)) {}

  // Calls visit(id, bytes) for every token that `text` begins with, the shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit&& visit) const;
  // The ids of what the way of most score calls a token: of a text that is none, the unknown's.
  void AppendToken(std::string_view token, std::vector<int32_t>& ids) const;

  UnigramSpec spec_;
  double unk_score_ = 0;
  std::vector<int32_t> sorted_;             // ids, by spelling
  std::array<uint32_t, 257> first_byte_{};  // where in sorted_ spellings begin with a byte
  std::array<int32_t, 256> byte_ids_{};     // of "<0x41>" and the like; -1: none
};

}  // namespace sluice
