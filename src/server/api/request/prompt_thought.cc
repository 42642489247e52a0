#include "server/api/request/prompt_thought.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/ascii.h"

namespace sluice {
namespace {

std::vector<std::string_view> MarksOf(const ReasoningFormat& format) {
  std::vector<std::string_view> marks(format.start.begin(), format.start.end());
  marks.insert(marks.end(), format.end.begin(), format.end.end());
  return marks;
}

bool IsPartOf(std::string_view text, std::span<const std::string_view> marks) {
  return std::ranges::any_of(
      marks, [text](std::string_view mark) { return mark.find(text) != std::string_view::npos; });
}

}  // namespace

std::string LastThoughtMark(const Prompt& prompt, const ReasoningFormat& format,
                            const Tokenizer& tokenizer, std::span<const int32_t> end_tokens) {
  const std::vector<std::string_view> marks = MarksOf(format);
  const auto in_text = [&](std::string_view mark) {
    return prompt.text.find(mark) != std::string::npos;
  };
  if (!prompt.text.empty() && std::ranges::none_of(marks, in_text)) return "";
  std::vector<std::string_view> known = marks;
  known.insert(known.end(), format.call_marks.begin(), format.call_marks.end());

  std::string text;
  std::vector<size_t> begins;  // offset in `text` at which each token begins
  for (const int32_t token : prompt.tokens) {
    begins.push_back(text.size());
    text += tokenizer.TokenBytes(token);
  }
  size_t last = std::string::npos, after = 0;
  for (const std::string_view mark : marks) {
    const size_t at = text.rfind(mark);
    if (at == std::string::npos || (last != std::string::npos && at < last)) continue;
    after = at == last ? std::max(after, at + mark.size()) : at + mark.size();
    last = at;
  }
  if (last == std::string::npos) return "";
  bool has_words = false, has_added = false;
  for (size_t i = begins.size(); i > 0 && begins[i - 1] >= after; --i) {
    const int32_t token = prompt.tokens[i - 1];
    if (std::ranges::count(end_tokens, token) > 0) return "";
    const std::string bytes = tokenizer.TokenBytes(token);
    if (!tokenizer.IsAdded(token)) {
      has_words |= !AsciiTrim(bytes).empty();
    } else if (!IsPartOf(bytes, known)) {
      has_added = true;
    }
  }
  return has_words && has_added ? "" : text.substr(last);
}

}  // namespace sluice
