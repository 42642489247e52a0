// Measures a JSON text before it is parsed, so that limits can be checked first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::json {

struct TextSize {
  size_t values = 0;   // upper bound of the number of values; each takes some hundred bytes once
                       // parsed
  size_t members = 0;  // upper bound of the number of object members; each also stores a key
  size_t depth = 0;    // maximum nesting of arrays and objects
  size_t digits = 0;   // length of the longest number
};

// Takes one pass over the text, which need not be valid JSON. Thread safety: any thread.
TextSize Measure(std::string_view text);

// Approximate upper bound of the bytes that Parse allocates for a text of `bytes` bytes: working
// memory plus the resulting value.
size_t ParseMemory(const TextSize& size, size_t bytes);

// Number of names that Value::Find and Value::Set have compared so far, in all threads. Tests check
// that it grows at most linearly with the size of a text.
uint64_t NumNamesCompared();

}  // namespace sluice::json
