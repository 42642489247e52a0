// Formats values as text: `%` and str.format, padding, replacement, and HTML escapes.
#pragma once

#include <string>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// Implements `format % arguments`: a tuple of values, a dictionary for %(name)s, or one value.
Value PercentFormat(const Value& format, const Value& arguments);
// Implements format.format(*positional, **keyword); attributes are restricted as in the sandbox.
Value BraceFormat(const Value& format, Arguments& arguments);

// Formats `value` with `digits` digits after the point, correctly rounded.
std::string FormatFixed(double value, int digits);

// Pads `text` to `width`. `align` is '<', '>', '^', or 'c' for str.center, which puts the extra
// blank on the left if the width is odd.
std::string PadText(std::string_view text, int64_t width, char align, std::string_view fill);
// Replaces the first `limit` occurrences, or all if `limit` is negative.
std::string ReplaceText(std::string_view text, std::string_view from, std::string_view to,
                        int64_t limit);
// Implements str.isupper if `upper`, else str.islower.
bool HasCase(std::string_view text, bool upper);

std::string StripTags(std::string_view text);     // Implements Markup.striptags.
std::string UnescapeHtml(std::string_view text);  // Unescapes numeric entities and the named ones
                                                  // that EscapeHtml writes.

}  // namespace sluice::jinja
