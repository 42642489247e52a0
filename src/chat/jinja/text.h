// Python's str methods on UTF-8. Everything that counts, cuts or classifies works on code points.
// Functions that read a whole text count their work (budget.h). Exceptions are NextCodePoint,
// CountCodePoints and ByteOffset; their callers count the work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace sluice::jinja {

// Returns the code point at `position` and advances `position` past it. Bytes that are not valid
// UTF-8 are read one by one. REQUIRES: position < text.size().
char32_t NextCodePoint(std::string_view text, size_t& position);
// Returns the code point that ends at `position`, and moves `position` to its start. REQUIRES:
// position > 0.
char32_t PreviousCodePoint(std::string_view text, size_t& position);
size_t CountCodePoints(std::string_view text);
std::u32string Decode(std::string_view text);
std::string Encode(std::u32string_view text);
// Returns the byte offset of code point `index`, or the size of the text if it has fewer.
size_t ByteOffset(std::string_view text, size_t index);

bool IsSpace(char32_t c);      // Implements str.isspace; also white space for strip() and split().
bool IsLineBreak(char32_t c);  // Whether splitlines() cuts at this character ("\r\n" counts once).
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
int DecimalValue(char32_t c);  // REQUIRES: IsDecimal(c).
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
inline bool IsAlphanumeric(char32_t c) {
  return IsAlpha(c) || IsNumeric(c);
}
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
bool IsPrintable(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);

// Trims white space, or the code points in `characters` if given.
enum class Side { kLeft, kRight, kBoth };
std::string_view Strip(std::string_view text, Side side, const std::string* characters = nullptr);
// Returns the line that begins at `position` and moves `position` to the next line; nullopt at the
// end of the text.
std::optional<std::string_view> NextLine(std::string_view text, size_t& position, bool keep_ends);

// Appends \xXX, \uXXXX or \UXXXXXXXX, as repr() and ascii() write `c`.
void AppendPythonEscape(std::string& out, char32_t c);
// Implements str.__repr__, including its choice of quotes.
void AppendRepr(std::string& out, std::string_view text);
// Implements bytes.__repr__.
void AppendBytesRepr(std::string& out, std::string_view bytes);

}  // namespace sluice::jinja
