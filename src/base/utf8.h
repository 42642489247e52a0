// UTF-8: validation, code points, and cutting text without splitting a character.
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// True if `text` is well-formed: no surrogates, no overlong forms, nothing above U+10FFFF.
bool IsValidUtf8(std::string_view text);

// Appends one code point. A surrogate becomes three bytes that are not valid UTF-8; callers that
// must not produce them check first. REQUIRES: code <= 0x10FFFF.
void AppendUtf8(std::string& out, uint32_t code);

// The beginning of a text: one well-formed sequence or, if not `valid`, the longest part that could
// have begun one (at least one byte). Unicode recommends replacing such a part by one U+FFFD.
struct Utf8Sequence {
  size_t size;
  bool valid;
};
// REQUIRES: `text` is not empty.
Utf8Sequence FirstUtf8Sequence(std::string_view text);

// The longest beginning of at most `max_bytes` that does not end inside a sequence.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

// `text` with control characters written as escapes (\n as "\n", others as "\x1b"), so that it can
// neither end a log line nor steer a terminal; those in `kept` stay.
std::string EscapeControls(std::string_view text, std::string_view kept);

}  // namespace sluice
