#include "parsers/text_input.h"

namespace sluice {

std::optional<char> TextInput::Next() {
  if (text_.empty()) return std::nullopt;
  const char next = text_.front();
  text_.erase(0, 1);
  return next;
}

int TextInput::PassUntil(std::span<const std::string> markers, std::string& passed) {
  for (size_t at = 0; at < text_.size(); ++at) {
    const std::string_view rest = std::string_view(text_).substr(at);
    bool may_begin = false;
    for (size_t i = 0; i < markers.size(); ++i) {
      const std::string_view marker = markers[i];
      if (rest.starts_with(marker)) {
        passed.append(text_, 0, at);
        text_.erase(0, at + marker.size());
        return static_cast<int>(i);
      }
      may_begin |= marker.starts_with(rest);
    }
    if (may_begin && !ended_) {
      passed.append(text_, 0, at);
      text_.erase(0, at);
      return kMore;
    }
  }
  passed += text_;
  text_.clear();
  return ended_ ? kEnd : kMore;
}

}  // namespace sluice
