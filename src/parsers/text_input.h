// Text that has come but is not read yet, searched for markers.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// Not thread-safe. Holds back what may become a marker and nothing else, so it stays short.
class TextInput {
 public:
  static constexpr int kMore = -1;  // everything but the beginning of a marker was passed on
  static constexpr int kEnd = -2;   // the text has ended without a marker

  void Add(std::string_view text) { text_ += text; }
  void End() { ended_ = true; }
  // Drops what is not read yet.
  void Clear() { text_.clear(); }
  bool ended() const { return ended_; }
  bool empty() const { return text_.empty(); }
  // Puts text back, to be read next.
  void Unread(std::string_view text) { text_.insert(0, text); }

  // The next byte, or nothing if there is none yet.
  std::optional<char> Next();

  // Appends the text before the first of `markers` to `passed` and reads over that marker, whose
  // index is returned; or kMore or kEnd.
  int PassUntil(std::span<const std::string> markers, std::string& passed);

 private:
  std::string text_;
  bool ended_ = false;
};

}  // namespace sluice
