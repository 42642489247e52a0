// Formatted text at the end of a string.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

namespace sluice {

// Compiled once: fmt::format_to() with an iterator compiles all of fmt's formatting into each
// source that calls it.
void AppendFormatted(std::string& out, fmt::string_view format, fmt::format_args args);

// As fmt::format(), onto the end of `out`.
template <typename... T>
void AppendFormat(std::string& out, fmt::format_string<T...> format, T&&... args) {
  AppendFormatted(out, format, fmt::make_format_args(args...));
}

}  // namespace sluice
