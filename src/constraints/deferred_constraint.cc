#include "constraints/deferred_constraint.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

void Set(std::span<uint32_t> mask, int32_t token, bool allowed) {
  const size_t word = static_cast<size_t>(token) / 32;
  if (word >= mask.size()) return;
  const uint32_t bit = 1u << (token % 32);
  mask[word] = allowed ? mask[word] | bit : mask[word] & ~bit;
}

bool IsSet(std::span<const uint32_t> mask, int32_t token) {
  const size_t word = static_cast<size_t>(token) / 32;
  return word < mask.size() && (mask[word] >> (token % 32) & 1) != 0;
}

class ThoughtMatcher final : public TokenMatcher {
 public:
  ThoughtMatcher(std::unique_ptr<TokenMatcher> matcher, std::shared_ptr<const ThoughtTokens> tokens,
                 AnswerStart start)
      : matcher_(std::move(matcher)), tokens_(std::move(tokens)), start_(start) {
    Reset();
  }

  bool Advance(int32_t token) override {
    switch (stage_) {
      case Stage::kStart: return TakeFirst(token);
      case Stage::kThought: return TakeThought(token);
      case Stage::kConstrained: return TakeConstrained(token);
    }
    return false;
  }

  bool FillMask(std::span<uint32_t> mask) override {
    if (stage_ == Stage::kConstrained) return matcher_->FillMask(mask);
    if (stage_ == Stage::kStart) {
      if (!follows_) {
        std::ranges::fill(mask, 0u);
      } else if (!matcher_->FillMask(mask)) {
        return false;
      }
      if (start_.may_think) tokens_->AllowBegin(begun_, mask);
      return true;
    }
    if (!may_be_empty_) {
      const bool may_be_empty = MayBeEmpty(mask);
      if (matcher_->is_stopped()) return false;  // in this case, may_be_empty is unknown
      may_be_empty_ = may_be_empty;
    }
    std::ranges::fill(mask, ~uint32_t{0});
    if (!*may_be_empty_) tokens_->ForbidEnd(start_.calls_end_it && MayEndCall(), mask);
    if (is_armed_) tokens_->ForbidOverrun(tail_, mask);
    return true;
  }

  void RollBack(int num_tokens) override {
    auto left = static_cast<size_t>(num_tokens);
    if (had_thought_) {
      const size_t constrained = std::min(left, num_constrained_);
      matcher_->RollBack(static_cast<int>(constrained));
      num_constrained_ -= constrained;
      left -= constrained;
      if (num_constrained_ == 0 && !thought_ended_) stage_ = Stage::kThought;
      if (left == 0) return;
      if (left <= thought_.size()) {
        thought_.resize(thought_.size() - left);
        places_.resize(thought_.size());
        thought_ended_ = false;
        stage_ = Stage::kThought;
        return ReadTail();
      }
      left -= thought_.size();
    } else if (stage_ == Stage::kConstrained) {
      // Number of tokens after first_, the tokens with which the answer could still have begun a
      // mark.
      const size_t after = num_constrained_ - first_.size();
      const size_t constrained = std::min(left, after);
      matcher_->RollBack(static_cast<int>(constrained));
      num_constrained_ -= constrained;
      left -= constrained;
      if (num_constrained_ > first_.size()) return;
      if (left == 0) {
        stage_ = Stage::kStart;
        return;
      }
    }
    std::vector<int32_t> kept = std::move(first_);
    kept.resize(kept.size() - left);
    Reset();
    for (const int32_t token : kept) Advance(token);
  }

  void Reset() override {
    matcher_->Reset();
    stage_ = start_.inside_thought ? Stage::kThought : Stage::kStart;
    had_thought_ = start_.inside_thought;
    thought_ended_ = false;
    first_.clear();
    begun_.clear();
    follows_ = true;
    thought_.clear();
    places_.clear();
    num_constrained_ = 0;
    ReadTail();
  }

  bool is_finished() const override {
    return stage_ == Stage::kConstrained && matcher_->is_finished();
  }
  void LimitCalls(double cpu_seconds) override { matcher_->LimitCalls(cpu_seconds); }
  bool is_stopped() const override { return matcher_->is_stopped(); }
  double cpu_seconds() const override { return matcher_->cpu_seconds(); }

 private:
  // kStart: the text so far may become a mark that begins a thought. While `follows_` is true, it
  // may also be the beginning of the constrained text.
  enum class Stage { kStart, kThought, kConstrained };

  // The position within a message of the thought. kHeader: in its header. kCallHeader: in its
  // header, which has named a tool as the recipient. kText and kCallText: in the text after such
  // headers.
  enum class Place : uint8_t { kHeader, kCallHeader, kText, kCallText };

  // If the prompt leaves a thought open, the answer begins in the thought's text; otherwise a
  // thought begins with a header.
  Place LastPlace() const {
    if (!places_.empty()) return places_.back();
    return start_.inside_thought ? Place::kText : Place::kHeader;
  }
  bool MayEndCall() const {
    return tokens_->marks().messages.text.empty() || LastPlace() == Place::kCallText;
  }

  void AddToThought(int32_t token) {
    const ThoughtMarks::Messages& messages = tokens_->marks().messages;
    Place place = LastPlace();
    if (!messages.text.empty()) {
      const std::string bytes = tokens_->BytesOfToken(token);
      std::string before;
      for (size_t i = thought_.size(); i > 0 && before.size() < tokens_->longest_message_mark();
           --i) {
        before.insert(0, tokens_->BytesOfToken(thought_[i - 1]));
      }
      const std::string text = before + bytes;
      for (size_t end = before.size() + 1; end <= text.size(); ++end)
        place = NextPlace(place, std::string_view(text).substr(0, end), messages);
    }
    thought_.push_back(token);
    places_.push_back(place);
  }

  static Place NextPlace(Place place, std::string_view text,
                         const ThoughtMarks::Messages& messages) {
    const auto is_at = [&](const std::string& mark) { return text.ends_with(mark); };
    if (place == Place::kText || place == Place::kCallText) {
      if (std::ranges::any_of(messages.begin, is_at)) return Place::kHeader;
      return std::ranges::any_of(messages.end, is_at) ? Place::kText : place;
    }
    if (is_at(messages.text)) return place == Place::kHeader ? Place::kText : Place::kCallText;
    return is_at(messages.recipient) ? Place::kCallHeader : place;
  }

  bool TakeConstrained(int32_t token) {
    if (!matcher_->Advance(token)) return false;
    ++num_constrained_;
    return true;
  }

  bool TakeFirst(int32_t token) {
    const std::string bytes = tokens_->BytesOfToken(token);
    const std::string text = begun_ + bytes;
    bool extends = false, completes = false;
    if (start_.may_think && !bytes.empty()) {
      for (const std::string& mark : tokens_->marks().begin) {
        extends |= mark.starts_with(text);
        completes |= mark == text;
      }
    }
    if (completes) {
      matcher_->Reset();
      first_.push_back(token);
      begun_ = text;
      num_constrained_ = 0;
      stage_ = Stage::kThought;
      had_thought_ = true;
      ReadTail();
      return true;
    }
    const bool follows = follows_ && matcher_->Advance(token);
    if (!extends && !follows) return false;
    if (follows) ++num_constrained_;
    if (extends) {
      first_.push_back(token);
      begun_ = text;
      follows_ = follows;
    } else {
      stage_ = Stage::kConstrained;
    }
    return true;
  }

  bool TakeThought(int32_t token) {
    if (tokens_->EndsAnswer(token)) {
      if (start_.calls_end_it && MayEndCall() && tokens_->EndsCall(token)) {
        AddToThought(token);
        return true;
      }
      if (!TakeConstrained(token)) return false;
      stage_ = Stage::kConstrained;
      return true;
    }
    std::string text = tail_ + tokens_->BytesOfToken(token);
    bool armed = is_armed_;
    if (!armed) {
      const std::string& before = tokens_->marks().before_end;
      if (const size_t at = text.find(before); at != std::string::npos) {
        armed = true;
        text.erase(0, at + before.size());
      }
    }
    bool ends = false;
    if (armed) {
      for (const std::string& mark : tokens_->marks().end) {
        const size_t at = text.find(mark);
        if (at == std::string::npos) continue;
        if (at + mark.size() != text.size()) return false;
        ends = true;
      }
    }
    AddToThought(token);
    if (armed && !is_armed_) armed_at_ = thought_.size();
    is_armed_ = armed;
    if (ends) {
      thought_ended_ = true;
      stage_ = Stage::kConstrained;
    } else {
      tail_ = std::move(text);
      TrimTail();
    }
    return true;
  }

  size_t LongestMark() const {
    size_t longest = tokens_->marks().before_end.size();
    for (const std::string& mark : tokens_->marks().end) longest = std::max(longest, mark.size());
    return longest;
  }
  // Keeps only the bytes at the end that may be the beginning of a mark.
  void TrimTail() {
    const size_t longest = LongestMark();
    if (tail_.size() >= longest) tail_.erase(0, tail_.size() - longest + 1);
  }

  // Recomputes tail_ and is_armed_ from the tokens of the thought so far.
  void ReadTail() {
    const bool waits = !tokens_->marks().before_end.empty();
    if (thought_.size() < armed_at_) armed_at_ = kNever;
    is_armed_ = !waits || armed_at_ != kNever;
    tail_.clear();
    const size_t first = waits && is_armed_ ? armed_at_ : 0;
    const size_t longest = LongestMark();
    for (size_t i = thought_.size(); i > first && tail_.size() < longest; --i)
      tail_.insert(0, tokens_->BytesOfToken(thought_[i - 1]));
    if (waits && !is_armed_ && tail_.size() < longest) tail_.insert(0, begun_);
    TrimTail();
  }

  bool MayBeEmpty(std::span<uint32_t> scratch) {
    if (!matcher_->FillMask(scratch)) return false;
    return std::ranges::any_of(tokens_->end_tokens(),
                               [&](int32_t token) { return IsSet(scratch, token); });
  }

  static constexpr size_t kNever = SIZE_MAX;

  const std::unique_ptr<TokenMatcher> matcher_;
  const std::shared_ptr<const ThoughtTokens> tokens_;
  const AnswerStart start_;
  Stage stage_ = Stage::kStart;
  bool had_thought_ = false;      // the thought has begun
  bool thought_ended_ = false;    // ended by an end mark
  std::vector<int32_t> first_;    // tokens accepted in kStart, including the begin mark
  std::string begun_;             // the text of first_
  bool follows_ = true;           // whether matcher_ has accepted all of first_
  std::vector<int32_t> thought_;  // tokens of the thought after the mark, kept for RollBack
  std::vector<Place> places_;     // position after each token of thought_
  std::string tail_;              // the end of the thought's text
  bool is_armed_ = false;         // whether end marks count
  size_t armed_at_ = kNever;      // number of tokens of thought_ after which end marks count
  size_t num_constrained_ = 0;    // number of tokens that matcher_ has accepted
  std::optional<bool> may_be_empty_;
};

class ConstraintAfterThought final : public Constraint {
 public:
  ConstraintAfterThought(std::shared_ptr<const Constraint> constraint,
                         std::shared_ptr<const ThoughtTokens> tokens, AnswerStart start)
      : constraint_(std::move(constraint)), tokens_(std::move(tokens)), start_(start) {}

  std::unique_ptr<TokenMatcher> NewMatcher() const override {
    return std::make_unique<ThoughtMatcher>(constraint_->NewMatcher(), tokens_, start_);
  }
  size_t bytes() const override { return constraint_->bytes(); }

 private:
  const std::shared_ptr<const Constraint> constraint_;
  const std::shared_ptr<const ThoughtTokens> tokens_;
  const AnswerStart start_;
};

}  // namespace

ThoughtTokens::ThoughtTokens(ThoughtMarks marks, int32_t num_tokens, BytesOf bytes_of,
                             std::vector<int32_t> end_tokens, std::vector<int32_t> call_ends)
    : marks_(std::move(marks)),
      bytes_of_(std::move(bytes_of)),
      end_tokens_(std::move(end_tokens)),
      call_ends_(std::move(call_ends)) {
  const auto places = [](const std::vector<std::string>& list) {
    std::vector<Place> all;
    for (size_t mark = 0; mark < list.size(); ++mark) {
      for (size_t written = 0; written < list[mark].size(); ++written)
        all.push_back({mark, written, {}});
    }
    return all;
  };
  const ThoughtMarks::Messages& messages = marks_.messages;
  longest_message_mark_ = std::max(messages.text.size(), messages.recipient.size());
  for (const std::vector<std::string>* list : {&messages.begin, &messages.end}) {
    for (const std::string& mark : *list)
      longest_message_mark_ = std::max(longest_message_mark_, mark.size());
  }
  begins_ = places(marks_.begin);
  overruns_ = places(marks_.end);
  for (int32_t token = 0; token < num_tokens; ++token) {
    const std::string bytes = bytes_of_(token);
    if (bytes.empty()) continue;
    for (Place& place : begins_) {
      if (std::string_view(marks_.begin[place.mark]).substr(place.written).starts_with(bytes))
        place.tokens.push_back(token);
    }
    for (Place& place : overruns_) {
      const std::string_view rest = std::string_view(marks_.end[place.mark]).substr(place.written);
      if (bytes.size() > rest.size() && bytes.starts_with(rest)) place.tokens.push_back(token);
    }
    for (const std::string& mark : marks_.end) {
      const size_t at = bytes.find(mark);
      if (at != std::string::npos && at + mark.size() < bytes.size()) holds_mark_.push_back(token);
    }
  }
  const auto is_empty = [](const Place& place) { return place.tokens.empty(); };
  std::erase_if(begins_, is_empty);
  std::erase_if(overruns_, is_empty);
}

bool ThoughtTokens::EndsAnswer(int32_t token) const {
  return std::ranges::count(end_tokens_, token) > 0;
}

bool ThoughtTokens::EndsCall(int32_t token) const {
  return std::ranges::count(call_ends_, token) > 0;
}

void ThoughtTokens::AllowBegin(const std::string& begun, std::span<uint32_t> mask) const {
  for (const Place& place : begins_) {
    if (place.written != begun.size() || !marks_.begin[place.mark].starts_with(begun)) continue;
    for (const int32_t token : place.tokens) Set(mask, token, true);
  }
}

void ThoughtTokens::ForbidOverrun(const std::string& tail, std::span<uint32_t> mask) const {
  for (const int32_t token : holds_mark_) Set(mask, token, false);
  for (const Place& place : overruns_) {
    if (!tail.ends_with(std::string_view(marks_.end[place.mark]).substr(0, place.written)))
      continue;
    for (const int32_t token : place.tokens) Set(mask, token, false);
  }
}

void ThoughtTokens::ForbidEnd(bool calls, std::span<uint32_t> mask) const {
  for (const int32_t token : end_tokens_) {
    if (!calls || !EndsCall(token)) Set(mask, token, false);
  }
}

std::shared_ptr<const Constraint> AfterThought(std::shared_ptr<const Constraint> constraint,
                                               std::shared_ptr<const ThoughtTokens> tokens,
                                               AnswerStart start) {
  return std::make_shared<const ConstraintAfterThought>(std::move(constraint), std::move(tokens),
                                                        start);
}

}  // namespace sluice
