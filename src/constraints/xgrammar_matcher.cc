#include "constraints/xgrammar_matcher.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

class XgrammarMatcher : public TokenMatcher {
 public:
  XgrammarMatcher(const xgrammar::CompiledGrammar& grammar, const WorkLimits& limits)
      : matcher_(grammar), limits_(limits) {}

  bool Advance(int32_t token) override {
    return Guarded([&] { return Take(token); });
  }
  bool FillMask(std::span<uint32_t> mask) override {
    return Guarded([&] {
      Fill(mask);
      return true;
    });
  }
  void RollBack(int num_tokens) override { matcher_.Rollback(num_tokens); }
  void Reset() override {
    matcher_.Reset();
    is_broken_ = false;
  }
  bool is_finished() const override { return matcher_.IsTerminated(); }

 protected:
  virtual bool Take(int32_t token) { return matcher_.AcceptToken(token); }
  virtual void Fill(std::span<uint32_t> mask) {
    int64_t words = static_cast<int64_t>(mask.size());
    DLTensor tensor{};
    tensor.data = mask.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = {kDLInt, 32, 1};
    tensor.shape = &words;
    matcher_.FillNextTokenBitmask(&tensor);
  }

  xgrammar::GrammarMatcher matcher_;

 private:
  // A matcher that was stopped in the middle of its work is of no use.
  template <typename Work>
  bool Guarded(Work work) {
    if (is_broken_) return false;
    try {
      const WorkBudget budget(limits_);
      return work();
    } catch (const std::exception&) {
      is_broken_ = true;
      return false;
    }
  }

  const WorkLimits limits_;
  bool is_broken_ = false;
};

// Counts the characters of bounded strings beside a grammar that does not.
class CountingMatcher final : public XgrammarMatcher {
 public:
  CountingMatcher(std::shared_ptr<const MatchedGrammar> grammar,
                  std::shared_ptr<const CountedVocabulary> vocabulary, const WorkLimits& limits)
      : XgrammarMatcher(grammar->grammar, limits),
        grammar_(std::move(grammar)),
        vocabulary_(std::move(vocabulary)),
        least_most_(std::ranges::min(grammar_->bounds, {}, &StringBounds::most).most) {
    place_.bounds = BoundsHere();
  }

  void RollBack(int num_tokens) override {
    for (; num_tokens > 0; --num_tokens) UndoLast();
  }
  void Reset() override {
    XgrammarMatcher::Reset();
    taken_.clear();
    place_ = {BoundsHere(), {}};
  }

 private:
  // Where the answer stands: in a string with bounds, or elsewhere.
  struct Place {
    const StringBounds* bounds = nullptr;
    StringCounter counter;
  };
  struct Taken {
    Place before;
    int32_t num_pieces = 0;
  };

  bool Take(int32_t token) override {
    taken_.push_back({place_, 0});
    if (IsEnd(token) || TextOf(token).find('"') == std::string_view::npos) {
      if (!TakesPiece(TextOf(token), IsEnd(token)) || !matcher_.AcceptToken(token)) return Refuse();
      taken_.back().num_pieces = 1;
      return true;
    }
    // Which bounds hold is known where a string begins: behind a quote.
    for (std::string_view rest = TextOf(token); !rest.empty();) {
      const std::string_view piece = rest.substr(0, std::min(rest.find('"'), rest.size() - 1) + 1);
      const bool was_inside = place_.bounds != nullptr;
      if (!TakesPiece(piece, false) || !matcher_.AcceptString(std::string(piece))) return Refuse();
      ++taken_.back().num_pieces;
      if (!was_inside || place_.bounds == nullptr) place_ = {BoundsHere(), {}};
      rest.remove_prefix(piece.size());
    }
    return true;
  }

  void Fill(std::span<uint32_t> mask) override {
    XgrammarMatcher::Fill(mask);
    if (place_.bounds == nullptr) {
      CheckTokensWithQuote(mask);
    } else if (place_.counter.is_plain()) {
      const int32_t most = place_.bounds->most;
      if (most != StringBounds::kUnbounded)
        vocabulary_->lengths.KeepAtMost(most - place_.counter.count(), mask);
      CheckTokensWithQuote(mask);
    } else {
      CheckAll(mask);
    }
  }

  const StringBounds* BoundsHere() const {
    const std::optional<float> number = matcher_.GetTemperature();
    return number ? &grammar_->bounds[static_cast<size_t>(*number) - 1] : nullptr;
  }
  bool IsEnd(int32_t token) const {
    return std::ranges::count(vocabulary_->vocabulary.end_tokens, token) > 0;
  }
  std::string_view TextOf(int32_t token) const {
    const auto& tokens = vocabulary_->vocabulary.tokens;
    return static_cast<size_t>(token) < tokens.size() ? tokens[static_cast<size_t>(token)]
                                                      : std::string_view();
  }

  // Counts a piece, of which only the last byte may be a closing quote; false if it breaks a bound.
  bool TakesPiece(std::string_view piece, bool is_end) {
    if (is_end || place_.bounds == nullptr) return true;
    const StringBounds bounds = *place_.bounds;
    for (const char c : piece) {
      if (!place_.counter.Take(static_cast<unsigned char>(c))) place_.bounds = nullptr;
    }
    const int32_t count = place_.counter.count();
    return count <= bounds.most && (place_.bounds != nullptr || count >= bounds.least);
  }

  bool Refuse() {
    UndoLast();
    return false;
  }
  void UndoLast() {
    if (taken_.back().num_pieces > 0) matcher_.Rollback(taken_.back().num_pieces);
    place_ = taken_.back().before;
    taken_.pop_back();
  }

  // Of a token that the grammar allows.
  bool KeepsBounds(int32_t token) {
    if (TextOf(token).find('"') != std::string_view::npos) {
      if (!Take(token)) return false;
      UndoLast();
      return true;
    }
    const Place before = place_;
    const bool keeps = TakesPiece(TextOf(token), IsEnd(token));
    place_ = before;
    return keeps;
  }
  // The grammar allows what is in `mask`: a token with one quote can break but one bound.
  void CheckTokensWithQuote(std::span<uint32_t> mask) {
    for (const int32_t token : vocabulary_->lengths.with_quote()) {
      uint32_t& word = mask[static_cast<size_t>(token) / 32];
      const uint32_t bit = 1u << (token % 32);
      if ((word & bit) == 0) continue;
      const std::string_view text = TextOf(token);
      const size_t quote = text.find('"');
      const bool has_one = text.find('"', quote + 1) == std::string_view::npos;
      if (place_.bounds == nullptr) {
        if (!has_one || static_cast<int64_t>(text.size() - quote - 1) > least_most_)
          word &= ~(KeepsBounds(token) ? 0 : bit);
      } else if (!has_one || text.find('\\') != std::string_view::npos) {
        word &= ~(KeepsBounds(token) ? 0 : bit);
      } else if (place_.counter.count() + vocabulary_->lengths.characters(token) <
                 place_.bounds->least) {
        word &= ~bit;
      }
    }
  }
  void CheckAll(std::span<uint32_t> mask) {
    for (size_t i = 0; i < mask.size(); ++i) {
      for (uint32_t word = mask[i]; word != 0; word &= word - 1) {
        if (!KeepsBounds(static_cast<int32_t>(i) * 32 + __builtin_ctz(word)))
          mask[i] &= ~(word & -word);
      }
    }
  }

  const std::shared_ptr<const MatchedGrammar> grammar_;
  const std::shared_ptr<const CountedVocabulary> vocabulary_;
  const int32_t least_most_;  // the smallest of all bounds
  Place place_;
  std::vector<Taken> taken_;  // what to undo, by token
};

}  // namespace

std::unique_ptr<TokenMatcher> NewXgrammarMatcher(
    std::shared_ptr<const MatchedGrammar> grammar,
    std::shared_ptr<const CountedVocabulary> vocabulary, const WorkLimits& limits) {
  if (grammar->bounds.empty()) return std::make_unique<XgrammarMatcher>(grammar->grammar, limits);
  return std::make_unique<CountingMatcher>(std::move(grammar), std::move(vocabulary), limits);
}

}  // namespace sluice
