// The printable spelling of bytes in byte-level vocabularies: each byte is a character ("Ġ" is a
// space).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::byte_level {

// The character that stands for a byte.
char32_t CharOf(uint8_t byte);
// The byte that a character stands for.
std::optional<uint8_t> ByteOf(char32_t c);

// Bytes to characters.
std::string Spell(std::string_view bytes);
// Characters to bytes; nullopt if a character represents no byte.
std::optional<std::string> Unspell(std::string_view spelling);

}  // namespace sluice::byte_level
