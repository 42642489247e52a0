// Writes values in Python's spelling, for log lines that tools for vLLM parse. Also counts UTF-8
// characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// Returns repr() of a string: 'a', "it's", '\n'.
std::string PythonRepr(std::string_view text);
// Returns repr() of a list: [1, 2], ['a'].
std::string PythonRepr(std::span<const int64_t> list);
std::string PythonRepr(std::span<const std::string> list);
// Returns str() of a float: 1.0, 1e-05, nan, inf.
std::string PythonFloat(double value);

// Number of code points in valid UTF-8.
size_t CountCharacters(std::string_view text);
// Returns at most the first `count` characters.
std::string_view TrimToCharacters(std::string_view text, size_t count);

}  // namespace sluice
