// Measures a JSON text before it is parsed, in the units of the limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::json {

struct TextSize {
  size_t values = 0;   // at least the number of values; each takes some hundred bytes once parsed
  size_t members = 0;  // number of members of objects; likewise, besides their values
  size_t depth = 0;    // nested arrays and objects
  size_t digits = 0;   // of the longest number
};

// Takes one pass over the text, which need not be valid JSON. Thread safety: any.
TextSize Measure(std::string_view text);

// Approximate upper bound of the memory that Parse takes for a text of `bytes`: working memory plus
// value.
size_t ParseMemory(const TextSize& size, size_t bytes);

// Number of names that Value::Find and Value::Set have compared so far, in all threads. Tests check
// that it grows no faster than the size of a text.
uint64_t NumNamesCompared();

}  // namespace sluice::json
