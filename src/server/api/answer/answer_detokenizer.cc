#include "server/api/answer/answer_detokenizer.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kNoCharacter = "\xEF\xBF\xBD";  // U+FFFD
// This many prompt tokens suffice to contain a character that is unfinished at the prompt's end.
constexpr size_t kUnfinishedTail = 8;

bool EndsWithinCharacter(const Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  return !prompt.empty() && tokenizer.Decode(prompt.last(1), false).ends_with(kNoCharacter);
}

std::span<const int32_t> TailOf(const Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  return EndsWithinCharacter(tokenizer, prompt)
             ? prompt.last(std::min(prompt.size(), kUnfinishedTail))
             : IncrementalDetokenizer::PromptTail(tokenizer, prompt);
}

// Returns the text before an unfinished character, and the U+FFFD in the character's place. The
// detokenizer returns both with the first text of the answer. "" if the text is complete.
std::pair<std::string, std::string> TextBefore(const Tokenizer& tokenizer, bool skip_special_tokens,
                                               std::span<const int32_t> tail) {
  std::string text = tokenizer.Decode(tail, skip_special_tokens), marks;
  if (!text.ends_with(kNoCharacter)) return {};
  while (text.ends_with(kNoCharacter)) {
    text.resize(text.size() - kNoCharacter.size());
    marks += kNoCharacter;
  }
  return {std::move(text), std::move(marks)};
}

}  // namespace

AnswerDetokenizer::AnswerDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                                     std::span<const int32_t> prompt)
    : detokenizer_(tokenizer, skip_special_tokens, TailOf(tokenizer, prompt)) {
  std::tie(prompt_text_, prompt_marks_) =
      TextBefore(tokenizer, skip_special_tokens, TailOf(tokenizer, prompt));
}

std::string AnswerDetokenizer::Push(int32_t token) {
  std::string text = detokenizer_.Push(token);
  if (text.empty() || prompt_marks_.empty()) return text;
  if (text.starts_with(prompt_text_)) text.erase(0, prompt_text_.size());
  if (text.starts_with(prompt_marks_)) text.erase(0, prompt_marks_.size());
  prompt_text_.clear();
  prompt_marks_.clear();
  return text;
}

}  // namespace sluice
