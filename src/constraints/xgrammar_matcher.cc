#include "constraints/xgrammar_matcher.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

class XgrammarMatcher : public TokenMatcher {
 public:
  XgrammarMatcher(std::shared_ptr<const MatchedGrammar> grammar, const WorkLimits& limits)
      : grammar_(std::move(grammar)), own_limits_(limits), limits_(limits) {}

  bool Advance(int32_t token) override {
    return Guarded([&] { return Take(token); });
  }
  bool FillMask(std::span<uint32_t> mask) override {
    return Guarded([&] {
      Fill(mask);
      return true;
    });
  }
  void RollBack(int num_tokens) override {
    if (num_tokens == 0) return;
    Guarded([&] {
      TakeBack(num_tokens);
      return true;
    });
  }
  void Reset() override {
    matcher_.reset();
    state_ = State::kWorks;
    is_finished_ = false;
  }
  bool is_finished() const override { return is_finished_; }
  void LimitCalls(double cpu_seconds) override {
    limits_.cpu_seconds = std::min(cpu_seconds, own_limits_.cpu_seconds);
  }
  bool is_stopped() const override { return state_ == State::kStopped; }
  double cpu_seconds() const override { return cpu_seconds_; }

 protected:
  // The following are called within the limits.
  virtual void Begin() {}
  virtual bool Take(int32_t token) { return matcher_->AcceptToken(token); }
  virtual void TakeBack(int num_tokens) { matcher_->Rollback(num_tokens); }
  virtual void Fill(std::span<uint32_t> mask) {
    int64_t words = static_cast<int64_t>(mask.size());
    DLTensor tensor{};
    tensor.data = mask.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = {kDLInt, 32, 1};
    tensor.shape = &words;
    matcher_->FillNextTokenBitmask(&tensor);
  }

  const std::shared_ptr<const MatchedGrammar> grammar_;
  // nullopt until the first call, because constructing it takes work.
  std::optional<xgrammar::GrammarMatcher> matcher_;

 private:
  // kStopped: was interrupted, unusable until Reset. kBroken: would fail again after Reset.
  enum class State { kWorks, kStopped, kBroken };

  template <typename Work>
  bool Guarded(Work work) {
    if (state_ != State::kWorks) return false;
    const WorkBudget budget(limits_);
    bool result = false;
    try {
      if (!matcher_) {
        matcher_.emplace(grammar_->grammar);
        Begin();
      }
      result = work();
      is_finished_ = matcher_->IsTerminated();
    } catch (const StackLimitExceeded&) {
      state_ = State::kBroken;
    } catch (const WorkLimitExceeded&) {
      state_ = State::kStopped;
    } catch (const std::bad_alloc&) {  // not the request's fault: it may succeed after a Reset
      state_ = State::kStopped;
    } catch (const std::exception&) {
      state_ = State::kBroken;
    }
    cpu_seconds_ += budget.cpu_seconds();
    return result;
  }

  const WorkLimits own_limits_;
  WorkLimits limits_;
  State state_ = State::kWorks;
  bool is_finished_ = false;
  double cpu_seconds_ = 0;
};

// Counts the characters of bounded strings, which the grammar itself does not count.
class CountingMatcher final : public XgrammarMatcher {
 public:
  CountingMatcher(std::shared_ptr<const MatchedGrammar> grammar,
                  std::shared_ptr<const CountedVocabulary> vocabulary, const WorkLimits& limits)
      : XgrammarMatcher(std::move(grammar), limits),
        vocabulary_(std::move(vocabulary)),
        least_most_(std::ranges::min(grammar_->bounds, {}, &StringBounds::most).most) {}

 private:
  // The position in the answer: whether it is inside a bounded string, which one, and the string's
  // length so far.
  struct Place {
    const StringBounds* bounds = nullptr;
    StringCounter counter;
  };
  struct Taken {
    Place before;
    int32_t num_pieces = 0;
  };

  void Begin() override {
    taken_.clear();
    place_ = {BoundsHere(), {}};
  }
  void TakeBack(int num_tokens) override {
    for (; num_tokens > 0; --num_tokens) UndoLast();
  }

  bool Take(int32_t token) override {
    taken_.push_back({place_, 0});
    if (IsEnd(token) || TextOf(token).find('"') == std::string_view::npos) {
      if (!TakesPiece(TextOf(token), IsEnd(token)) || !matcher_->AcceptToken(token))
        return Refuse();
      taken_.back().num_pieces = 1;
      return true;
    }
    // Splits at quotes, because the bounds are known only where a string begins.
    for (std::string_view rest = TextOf(token); !rest.empty();) {
      const std::string_view piece = rest.substr(0, std::min(rest.find('"'), rest.size() - 1) + 1);
      const bool was_inside = place_.bounds != nullptr;
      if (!TakesPiece(piece, false) || !matcher_->AcceptString(std::string(piece))) return Refuse();
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
    const std::optional<float> number = matcher_->GetTemperature();
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

  // Counts a piece in which only the last byte may be a closing quote. Returns false if it breaks a
  // bound.
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
    if (taken_.back().num_pieces > 0) matcher_->Rollback(taken_.back().num_pieces);
    place_ = taken_.back().before;
    taken_.pop_back();
  }

  // Whether a token that the grammar allows respects the bounds.
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
  // Clears in `mask` the tokens with a quote that break bounds. The grammar allows all tokens in
  // `mask`, so a token with one quote can break only one bound.
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

  const std::shared_ptr<const CountedVocabulary> vocabulary_;
  const int32_t least_most_;  // the lowest maximum of all bounds
  Place place_;
  std::vector<Taken> taken_;  // how to undo each token
};

}  // namespace

std::unique_ptr<TokenMatcher> NewXgrammarMatcher(
    std::shared_ptr<const MatchedGrammar> grammar,
    std::shared_ptr<const CountedVocabulary> vocabulary, const WorkLimits& limits) {
  const bool bounds_whitespace = grammar->bounds_whitespace;
  std::unique_ptr<TokenMatcher> matcher;
  if (grammar->bounds.empty())
    matcher = std::make_unique<XgrammarMatcher>(std::move(grammar), limits);
  else
    matcher = std::make_unique<CountingMatcher>(std::move(grammar), vocabulary, limits);
  if (!bounds_whitespace) return matcher;
  const WhitespaceTokens* const whitespace = &vocabulary->whitespace;
  return WithBoundedWhitespace(std::move(matcher), {std::move(vocabulary), whitespace});
}

}  // namespace sluice
