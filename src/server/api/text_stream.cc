#include "server/api/text_stream.h"

#include <algorithm>

#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr size_t kTrimBytes = 4096;

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules,
                       bool skip_special_tokens)
    : detokenizer_(tokenizer, skip_special_tokens,
                   IncrementalDetokenizer::PromptTail(tokenizer, prompt)),
      rules_(std::move(rules)) {
  for (const std::string& stop : rules_.strings) {
    longest_stop_bytes_ = std::max(longest_stop_bytes_, stop.size());
    if (!rules_.include_in_output)
      held_characters_ = std::max(held_characters_, CountCharacters(stop) - 1);
  }
}

std::optional<std::string> TextStream::Push(int32_t token) {
  ++num_tokens_;
  const std::string added = detokenizer_.Push(token);
  text_ += added;
  std::optional<std::string> match;
  if (!added.empty() && !rules_.strings.empty() && num_tokens_ > rules_.min_tokens)
    Search(added.size(), match);
  if (match) finished_ = true;
  return match;
}

// Searches the new bytes, and as many before them as may hold the start of a stop string.
void TextStream::Search(size_t new_bytes, std::optional<std::string>& match) {
  size_t best_begin = 0, best_end = std::string::npos;
  for (const std::string& stop : rules_.strings) {
    const size_t reach = new_bytes + stop.size() - 1;
    const size_t from = text_.size() > reach ? text_.size() - reach : 0;
    const size_t begin = text_.find(stop, from);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_begin = begin;
      best_end = end;
      match = stop;
    }
  }
  if (match) text_.resize(std::max(taken_, rules_.include_in_output ? best_end : best_begin));
}

void TextStream::Finish() {
  if (finished_) return;
  finished_ = true;
  text_ += detokenizer_.Finish();
}

std::string TextStream::Take() {
  size_t end = text_.size();
  if (!finished_) {
    for (size_t i = 0; i < held_characters_ && end > 0; ++i) {
      --end;
      while (end > 0 && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) --end;
    }
  }
  if (end <= taken_) return {};
  std::string result = text_.substr(taken_, end - taken_);
  taken_ = end;
  if (taken_ > kTrimBytes + longest_stop_bytes_) {
    const size_t cut = taken_ - longest_stop_bytes_;
    text_.erase(0, cut);
    taken_ -= cut;
  }
  return result;
}

}  // namespace sluice
