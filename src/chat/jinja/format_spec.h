// Python's format specifications ("{:>8.2f}"), and helpers shared with printf-style conversions.
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: the default for the type.
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;       // ',' or '_'; 0: none.
  int64_t precision = -1;  // Negative: not given.
  char type = 0;
};

// Fails (ValueError) if `text` is not valid.
FormatSpec ParseFormatSpec(std::string_view text);
// Implements format(value, spec).
std::string FormatValue(const Value& value, std::string_view spec);

// Formats a finite or infinite number with C's conversion `type` (e, f, g, in either case), without
// a sign.
std::string FormatMagnitude(double value, char type, int precision, bool alternate);
// The digits of an integer's magnitude in base 2, 8, 10 or 16.
std::string IntegerDigits(const Value& integer, int base, bool upper);
// Joins sign, prefix and digits, padded to the width of the spec.
std::string PadNumber(const FormatSpec& spec, bool is_negative, std::string_view prefix,
                      std::string digits);

}  // namespace sluice::jinja
