#include "server/api/answer/text_stream.h"

#include <utility>

#include "server/api/common/python_text.h"

namespace sluice {

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules,
                       bool skip_special_tokens)
    : detokenizer_(tokenizer, skip_special_tokens, prompt), search_(std::move(rules)) {}

std::optional<std::string> TextStream::Push(int32_t token) {
  ++num_tokens_;
  const std::string added = detokenizer_.Push(token);
  num_characters_ += static_cast<int64_t>(CountCharacters(added));
  std::optional<std::string> match = search_.Add(added, num_tokens_ > search_.min_tokens());
  if (match) finished_ = true;
  return match;
}

void TextStream::Finish() {
  if (finished_) return;
  finished_ = true;
  const std::string rest = detokenizer_.Finish();
  num_characters_ += static_cast<int64_t>(CountCharacters(rest));
  search_.Add(rest, /*searched=*/false);
}

std::string TextStream::Take() {
  return finished_ ? search_.TakeAll() : search_.Take();
}

}  // namespace sluice
