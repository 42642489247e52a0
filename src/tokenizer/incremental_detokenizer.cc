#include "tokenizer/incremental_detokenizer.h"

#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

namespace sluice {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                                               std::span<const int32_t> prompt_tail)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {
  for (const int32_t id : prompt_tail) Append(id);
  if (tokenizer.pipeline_->HasByteLevelDecoder()) {
    std::string text;
    unicode::AppendLossy(text, pending_bytes_);
    if (!text.ends_with(unicode::kReplacement)) {
      pending_bytes_.clear();
      num_pending_ = 0;
    }
  }
}

// Adds a token without emitting text. Ignores tokens that have no text.
void IncrementalDetokenizer::Append(int32_t id) {
  const tokenizer_internal::Pipeline& pipeline = *tokenizer_->pipeline_;
  if (!pipeline.IsVisible(id, skip_special_tokens_)) return;
  if (pipeline.HasByteLevelDecoder()) {
    pending_bytes_.append(pipeline.BytesOf(id));
    ++num_pending_;
  } else {
    window_.push_back(id);
  }
}

std::string IncrementalDetokenizer::Push(int32_t id) {
  const tokenizer_internal::Pipeline& pipeline = *tokenizer_->pipeline_;
  if (!pipeline.IsVisible(id, skip_special_tokens_)) return {};
  return pipeline.HasByteLevelDecoder() ? PushBytes(id) : PushWindow(id);
}

std::string IncrementalDetokenizer::PushBytes(int32_t id) {
  Append(id);
  std::string text;
  unicode::AppendLossy(text, pending_bytes_);
  if (text.ends_with(unicode::kReplacement) && num_pending_ < kMaxPendingTokens) return {};
  pending_bytes_.clear();
  num_pending_ = 0;
  return text;
}

std::string IncrementalDetokenizer::PushWindow(int32_t id) {
  // The prefix has been emitted already. The part of the decoded window after it is the new text.
  if (prefix_.empty() && !window_.empty()) {
    std::string prefix = tokenizer_->Decode(window_, skip_special_tokens_);
    if (!prefix.ends_with(unicode::kReplacement)) {
      prefix_ = std::move(prefix);
      prefix_tokens_ = window_.size();
    }
  }
  window_.push_back(id);
  std::string text = tokenizer_->Decode(window_, skip_special_tokens_);
  const bool overdue = window_.size() - prefix_tokens_ > kMaxPendingTokens;
  const bool complete = text.size() > prefix_.size() && !text.ends_with(unicode::kReplacement);
  if (!complete && !overdue) return {};
  if (!text.starts_with(prefix_)) {
    // The new token changed earlier text: starts again with only this token, as vLLM does.
    window_.assign(1, id);
    prefix_.clear();
    prefix_tokens_ = 0;
    text = tokenizer_->Decode(window_, skip_special_tokens_);
    if (text.empty() || text.ends_with(unicode::kReplacement)) return {};
  }
  std::string fresh = text.substr(prefix_.size());
  const size_t kept = window_.size() - prefix_tokens_;
  window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(prefix_tokens_));
  // Overdue text is emitted as it is, and its tokens do not affect later text.
  if (overdue) window_.clear();
  prefix_ = tokenizer_->Decode(window_, skip_special_tokens_);
  prefix_tokens_ = overdue ? 0 : kept;
  return fresh;
}

std::string IncrementalDetokenizer::Finish() {
  pending_bytes_.clear();
  num_pending_ = 0;
  window_.clear();
  prefix_.clear();
  prefix_tokens_ = 0;
  return {};
}

std::span<const int32_t> IncrementalDetokenizer::PromptTail(const Tokenizer& tokenizer,
                                                            std::span<const int32_t> prompt) {
  constexpr size_t kMin = 4, kMax = 24;
  for (size_t n = kMin; n <= prompt.size() && n < kMax; ++n) {
    const std::span<const int32_t> tail = prompt.last(n);
    if (tokenizer.Decode(tail, false).find(unicode::kReplacement) == std::string::npos) return tail;
  }
  return prompt;
}

}  // namespace sluice
