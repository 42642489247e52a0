#include "bench/exact_text.h"

#include <algorithm>

namespace sluice::bench {
namespace {

constexpr int kMaxRounds = 10;
constexpr int kMaxCuts = 64;

std::string Repeat(const std::string& text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

}  // namespace

const std::string& ExactText::Filler() {
  if (filler_) return *filler_;
  filler_ = "";
  const auto stands_for_one = [&](const std::string& text) {
    return Count(Repeat(text, 16)) - Count(Repeat(text, 8)) == 8;
  };
  for (const char* word : {" a", " the", " of"}) {
    if (stands_for_one(word)) return *(filler_ = word);
  }
  for (const std::string& text : tokenizer_.ShortTexts()) {
    if (stands_for_one(text)) return *(filler_ = text);
  }
  return *filler_;
}

std::string ExactText::Make(std::vector<int32_t>& ids, int64_t count,
                            const std::function<std::vector<int64_t>(int64_t)>& random_ids) {
  const auto wanted = static_cast<size_t>(count);
  std::string text;
  for (int round = 0;; ++round) {
    text = tokenizer_.Decode(ids);
    ids = tokenizer_.Encode(text, false);
    if (ids.size() == wanted) return text;
    if (round == kMaxRounds) break;
    if (ids.size() > wanted) {
      ids.resize(wanted);
    } else {
      for (int64_t id : random_ids(static_cast<int64_t>(wanted - ids.size())))
        ids.push_back(static_cast<int32_t>(id));
    }
  }
  if (Filler().empty()) return text;

  size_t keep = std::min(ids.size(), wanted);
  for (int cut = 0; cut < kMaxCuts; ++cut) {
    const std::string head = tokenizer_.Decode(std::span(ids).first(keep));
    const size_t size = Count(head);
    if (size <= wanted) {
      size_t fill = wanted - size;
      // The filler may merge with the text that precedes it.
      for (int attempt = 0; attempt < 4; ++attempt) {
        std::string filled = head + Repeat(Filler(), fill);
        std::vector<int32_t> tokens = tokenizer_.Encode(filled, false);
        if (tokens.size() == wanted) {
          ids = std::move(tokens);
          return filled;
        }
        if (tokens.size() > wanted && fill < tokens.size() - wanted) break;
        fill = fill + wanted - tokens.size();
      }
    }
    if (keep == 0) break;
    keep -= std::min(keep, std::max<size_t>(size > wanted ? size - wanted : 1, 1));
  }
  return text;
}

}  // namespace sluice::bench
