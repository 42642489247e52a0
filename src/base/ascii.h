// Lower case of the letters of ASCII; other bytes stay as they are, whatever the locale.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

inline char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = AsciiLower(c);
  return lower;
}

}  // namespace sluice
