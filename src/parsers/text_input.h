// Text that has not been read yet and is searched for markers.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// Holds back only text that may become a marker, so the buffer stays short. Thread safety: one
// thread.
class TextInput {
 public:
  static constexpr int kMore = -1;  // no marker yet: all text was passed on, except a possible
                                    // beginning of a marker
  static constexpr int kEnd = -2;   // no marker: the text has ended

  void Add(std::string_view text) { text_ += text; }
  void End() { ended_ = true; }
  // Drops the unread text.
  void Clear() { text_.clear(); }
  bool ended() const { return ended_; }
  bool empty() const { return text_.empty(); }
  // Puts text back, to be read next.
  void Unread(std::string_view text) { text_.insert(0, text); }

  // Returns the next byte; nullopt if there is none yet.
  std::optional<char> Next();

  // Appends the text before the first of `markers` to `passed`, skips that marker and returns its
  // index; kMore or kEnd if there is none.
  int PassUntil(std::span<const std::string> markers, std::string& passed);

 private:
  std::string text_;
  bool ended_ = false;
};

}  // namespace sluice
