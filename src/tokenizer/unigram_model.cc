#include "tokenizer/unigram_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/encode_budget.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

// The score of an unknown character is the lowest score of any token minus this penalty.
constexpr double kUnknownPenalty = 10;

// The best segmentation of the text up to a position.
struct Node {
  double score = 0;
  int64_t begin = -1;  // start of its last token; -1 if no segmentation is known
  bool is_unknown = false;
};

}  // namespace

Result<UnigramModel> UnigramModel::Create(UnigramSpec spec) {
  if (spec.unk_id < 0 || spec.unk_id >= static_cast<int64_t>(spec.scores.size())) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("model.unk_id must be the place of a token in model.vocab, of {}, found "
                    "{}",
                    spec.scores.size(), spec.unk_id),
        "model.unk_id");
  }
  UnigramModel model(std::move(spec));
  const TokenTable& vocabulary = model.spec_.vocabulary;
  const std::vector<double>& scores = model.spec_.scores;
  model.unk_score_ = *std::min_element(scores.begin(), scores.end()) - kUnknownPenalty;
  for (int32_t id = 0; id < vocabulary.end_id(); ++id)
    if (!vocabulary.Spelling(id).empty()) model.sorted_.push_back(id);
  std::sort(model.sorted_.begin(), model.sorted_.end(),
            [&](int32_t a, int32_t b) { return vocabulary.Spelling(a) < vocabulary.Spelling(b); });
  for (const int32_t id : model.sorted_)
    ++model.first_byte_[static_cast<unsigned char>(vocabulary.Spelling(id)[0]) + size_t{1}];
  std::partial_sum(model.first_byte_.begin(), model.first_byte_.end(), model.first_byte_.begin());
  for (size_t byte = 0; byte < 256; ++byte)
    model.byte_ids_[byte] = vocabulary.Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  return model;
}

template <typename Visit>
void UnigramModel::ForEachPrefix(std::string_view text, Visit&& visit) const {
  const TokenTable& vocabulary = spec_.vocabulary;
  const auto lead = static_cast<unsigned char>(text[0]);
  auto begin = sorted_.begin() + first_byte_[lead];
  auto end = sorted_.begin() + first_byte_[lead + size_t{1}];
  for (size_t size = 1; begin != end && EncodeBudget::Spend(1); ++size) {
    // All spellings in [begin, end) begin with the first `size` bytes of the text. If one of them
    // equals those bytes, it is the first.
    if (vocabulary.Spelling(*begin).size() == size) visit(*begin++, size);
    if (size == text.size()) return;
    const auto byte_of = [&](int32_t id) {
      return static_cast<unsigned char>(vocabulary.Spelling(id)[size]);
    };
    const auto next = static_cast<unsigned char>(text[size]);
    begin = std::lower_bound(begin, end, next,
                             [&](int32_t id, unsigned char byte) { return byte_of(id) < byte; });
    end = std::upper_bound(begin, end, next,
                           [&](unsigned char byte, int32_t id) { return byte < byte_of(id); });
  }
}

void UnigramModel::AppendToken(std::string_view token, std::vector<int32_t>& ids) const {
  if (const std::optional<int32_t> id = spec_.vocabulary.Find(token)) return ids.push_back(*id);
  const auto id_of = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  const bool falls_back =
      spec_.byte_fallback && std::ranges::all_of(token, [&](char c) { return id_of(c) >= 0; });
  if (!falls_back) return ids.push_back(static_cast<int32_t>(spec_.unk_id));
  for (const char byte : token) ids.push_back(id_of(byte));
}

void UnigramModel::Encode(std::string_view piece, const char* /*text_end*/,
                          std::vector<int32_t>& ids) const {
  std::vector<Node> ways(piece.size() + 1);
  const auto offer = [&](size_t begin, size_t end, double score, bool is_unknown) {
    Node& way = ways[end];
    if (way.begin >= 0 && score <= way.score) return;
    way = {score, static_cast<int64_t>(begin), is_unknown};
  };
  for (size_t begin = 0; begin < piece.size();) {
    const double score = ways[begin].score;
    const size_t length = unicode::SequenceLength(piece[begin]);
    bool has_character = false;
    ForEachPrefix(piece.substr(begin), [&](int32_t id, size_t size) {
      offer(begin, begin + size, score + spec_.scores[static_cast<size_t>(id)], id == spec_.unk_id);
      has_character |= size == length;
    });
    if (!has_character) offer(begin, begin + length, score + unk_score_, true);
    begin += length;
  }
  // Collects the tokens from the end. Adjacent unknown characters become one token.
  std::vector<std::string_view> tokens;
  bool joins = false;
  for (size_t end = piece.size(); end > 0;) {
    const Node& way = ways[end];
    const auto begin = static_cast<size_t>(way.begin);
    if (way.is_unknown && joins) {
      const std::string_view later = tokens.back();
      tokens.back() = piece.substr(begin, end - begin + later.size());
    } else {
      tokens.push_back(piece.substr(begin, end - begin));
    }
    joins = way.is_unknown;
    end = begin;
  }
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) AppendToken(*token, ids);
}

}  // namespace sluice
