// The printable spelling of bytes in byte-level vocabularies: each byte is spelled as one character
// ("Ġ" is a space).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::byte_level {

// Returns the character that represents a byte.
char32_t CharOf(uint8_t byte);
// Returns the byte that a character represents, if any.
std::optional<uint8_t> ByteOf(char32_t c);

// Converts bytes to characters.
std::string Spell(std::string_view bytes);
// Converts characters to bytes; nullopt if a character represents no byte.
std::optional<std::string> Unspell(std::string_view spelling);

}  // namespace sluice::byte_level
