#include "constraints/json_whitespace.h"

#include <algorithm>
#include <functional>

namespace sluice {
namespace {

bool IsJsonSpace(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// The position of an answer within JSON.
struct JsonPlace {
  bool in_string = false;
  bool is_escaped = false;  // whether the previous byte was the backslash of an escape
  int32_t run = 0;          // length of the current white space, outside strings

  // Advances by `text`. Returns false if there is too much consecutive white space.
  bool Take(std::string_view text) {
    for (const char c : text) {
      if (in_string) {
        in_string = is_escaped || c != '"';
        is_escaped = !is_escaped && c == '\\';
      } else {
        in_string = c == '"';
        run = IsJsonSpace(c) ? run + 1 : 0;
        if (run > kMaxWhitespace) return false;
      }
    }
    return true;
  }
};

class WhitespaceMatcher final : public TokenMatcher {
 public:
  WhitespaceMatcher(std::unique_ptr<TokenMatcher> matcher,
                    std::shared_ptr<const WhitespaceTokens> tokens)
      : matcher_(std::move(matcher)), owned_(std::move(tokens)), tokens_(*owned_) {}

  bool Advance(int32_t token) override {
    JsonPlace next = place_;
    if (!next.Take(tokens_.TextOf(token)) || !matcher_->Advance(token)) return false;
    before_.push_back(place_);
    place_ = next;
    return true;
  }
  bool FillMask(std::span<uint32_t> mask) override {
    if (!matcher_->FillMask(mask)) return false;
    if (!place_.in_string) {
      for (const auto& [length, token] : tokens_.leading()) {
        if (place_.run + length <= kMaxWhitespace) break;
        mask[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
      }
    }
    for (const int32_t token : tokens_.long_ones()) {
      JsonPlace next = place_;
      if (!next.Take(tokens_.TextOf(token)))
        mask[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
    }
    return true;
  }
  void RollBack(int num_tokens) override {
    if (num_tokens == 0) return;
    matcher_->RollBack(num_tokens);
    before_.resize(before_.size() - static_cast<size_t>(num_tokens) + 1);
    place_ = before_.back();
    before_.pop_back();
  }
  void Reset() override {
    matcher_->Reset();
    place_ = {};
    before_.clear();
  }
  bool is_finished() const override { return matcher_->is_finished(); }
  void LimitCalls(double cpu_seconds) override { matcher_->LimitCalls(cpu_seconds); }
  bool is_stopped() const override { return matcher_->is_stopped(); }
  double cpu_seconds() const override { return matcher_->cpu_seconds(); }

 private:
  const std::unique_ptr<TokenMatcher> matcher_;
  const std::shared_ptr<const WhitespaceTokens> owned_;
  const WhitespaceTokens& tokens_;
  JsonPlace place_;
  std::vector<JsonPlace> before_;  // position before each token
};

}  // namespace

WhitespaceTokens::WhitespaceTokens(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  for (int32_t token = 0; token < std::ssize(vocabulary.tokens); ++token) {
    const std::string_view text = TextOf(token);
    const auto leading =
        static_cast<int32_t>(std::ranges::find_if_not(text, IsJsonSpace) - text.begin());
    if (leading > 0) leading_.emplace_back(leading, token);
    int32_t run = 0, longest = 0;
    for (const char c : text) {
      run = IsJsonSpace(c) ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    if (longest > kMaxWhitespace) long_.push_back(token);
  }
  std::ranges::sort(leading_, std::greater<>());
}

std::string_view WhitespaceTokens::TextOf(int32_t token) const {
  const auto index = static_cast<size_t>(token);
  return index < vocabulary_.tokens.size() ? vocabulary_.tokens[index] : std::string_view();
}

std::unique_ptr<TokenMatcher> WithBoundedWhitespace(
    std::unique_ptr<TokenMatcher> matcher, std::shared_ptr<const WhitespaceTokens> tokens) {
  return std::make_unique<WhitespaceMatcher>(std::move(matcher), std::move(tokens));
}

}  // namespace sluice
