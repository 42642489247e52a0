// Parses JSON and reports where a text is not valid JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace sluice::json {

// Like Parse, but the error message does not contain the position. After an error, `fault` is the
// offset of the first faulty byte: the length of the text if it ends too early, npos if unknown.
Result<Value> ParseWithPlace(std::string_view text, const ParseLimits& limits, size_t& fault);

// Parses in place, without a copy of the text. REQUIRES: kTextPadding bytes after the text are
// readable.
inline constexpr size_t kTextPadding = 64;
Result<Value> ParsePadded(std::string_view text, const ParseLimits& limits, size_t& fault);

// The line and column of the byte at `offset`, counted from 1. Columns count characters.
struct TextPlace {
  int64_t line;
  int64_t column;
};
TextPlace PlaceOf(std::string_view text, size_t offset);

}  // namespace sluice::json
