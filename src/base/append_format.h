// Appends formatted text to a string.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

namespace sluice {

// Defined in the .cc so that it is compiled once: fmt::format_to() with an iterator would
// instantiate fmt's formatting code in every source file that calls it.
void AppendFormatted(std::string& out, fmt::string_view format, fmt::format_args args);

// Appends to `out` what fmt::format() would return.
template <typename... T>
void AppendFormat(std::string& out, fmt::format_string<T...> format, T&&... args) {
  AppendFormatted(out, format, fmt::make_format_args(args...));
}

}  // namespace sluice
