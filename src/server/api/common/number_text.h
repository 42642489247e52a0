// Parses numbers that clients send as text. As in vLLM, blanks around the number, a plus sign, and
// single underscores between digits ("1_000") are accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice {

// Parses a decimal integer. One outside int64 becomes the nearest int64.
std::optional<int64_t> ParseInteger(std::string_view text);
// Parses a decimal number, "inf" or "nan"; nullopt if it is out of the range of double.
std::optional<double> ParseNumber(std::string_view text);

}  // namespace sluice
