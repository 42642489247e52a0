#include "tokenizer/word_piece_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/encode_budget.h"

namespace sluice {

Result<WordPieceModel> WordPieceModel::Create(WordPieceSpec spec) {
  const std::optional<int32_t> unk = spec.vocabulary.Find(spec.unk_token);
  if (!unk) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("model.unk_token '{}' is not in model.vocab", spec.unk_token),
                "model.unk_token");
  }
  WordPieceModel model(std::move(spec));
  model.unk_id_ = *unk;
  return model;
}

void WordPieceModel::Encode(std::string_view word, const char* /*text_end*/,
                            std::vector<int32_t>& ids) const {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto num_characters = static_cast<size_t>(std::ranges::count_if(word, begins));
  if (num_characters > spec_.max_characters) return ids.push_back(unk_id_);
  const size_t first = ids.size();
  std::string candidate;
  for (size_t begin = 0; begin < word.size();) {
    std::optional<int32_t> found;
    size_t end = word.size();
    while (end > begin && EncodeBudget::Spend(4 + (end - begin + spec_.prefix.size()) / 32)) {
      candidate.assign(begin > 0 ? spec_.prefix : "");
      candidate.append(word, begin, end - begin);
      found = spec_.vocabulary.Find(candidate);
      if (found) break;
      // Moves back to the start of the last character.
      do --end;
      while (end > begin && !begins(word[end]));
    }
    if (!found) {
      ids.resize(first);
      return ids.push_back(unk_id_);
    }
    ids.push_back(*found);
    begin = end;
  }
}

}  // namespace sluice
