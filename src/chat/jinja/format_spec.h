// Python's format specifications ("{:>8.2f}"), and helpers shared with printf-style conversions.
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '=' or 0 for the default of the type.
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;       // ',' or '_'.
  int64_t precision = -1;  // Absent if negative.
  char type = 0;
};

// Fails (ValueError) if `text` is not valid.
FormatSpec ParseFormatSpec(std::string_view text);
// format(value, spec).
std::string FormatValue(const Value& value, std::string_view spec);

// A finite or infinite number in C's conversion `type` (e, f, g, in either case) without a sign.
std::string FormatMagnitude(double value, char type, int precision, bool alternate);
// Digits of the magnitude of an integer in base 2, 8, 10 or 16.
std::string IntegerDigits(const Value& integer, int base, bool upper);
// Sign and prefix, then the digits, padded to the width of the spec.
std::string PadNumber(const FormatSpec& spec, bool is_negative, std::string_view prefix,
                      std::string digits);

}  // namespace sluice::jinja
