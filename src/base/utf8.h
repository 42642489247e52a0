// UTF-8: validates text, reads and writes code points, and cuts text between characters. Thread
// safety: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// Whether `text` is well-formed: no surrogates, no overlong forms, nothing above U+10FFFF.
bool IsValidUtf8(std::string_view text);

// Appends one code point. A surrogate becomes three bytes that are not valid UTF-8; callers that
// must not produce them check first. REQUIRES: code <= 0x10FFFF.
void AppendUtf8(std::string& out, uint32_t code);

// The size of the first sequence of a text. If the sequence is not `valid`: the size of the longest
// part that could begin a sequence, at least one byte. Unicode recommends replacing this part by
// one U+FFFD.
struct Utf8Sequence {
  size_t size;
  bool valid;
};
// REQUIRES: `text` is not empty.
Utf8Sequence FirstUtf8Sequence(std::string_view text);

// Returns the longest prefix of at most `max_bytes` that does not split a sequence.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

// Writes control characters as escapes (newline as "\n", others as "\x1b"), so that `text` cannot
// end a log line or control a terminal. Characters in `kept` are left as they are.
std::string EscapeControls(std::string_view text, std::string_view kept);

}  // namespace sluice
