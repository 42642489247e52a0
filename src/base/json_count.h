// The size of a JSON text in the units that its limits are stated in, before anything is parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::json {

struct TextSize {
  size_t values = 0;   // at least the number of values; each takes some hundred bytes once parsed
  size_t members = 0;  // of objects; likewise, beside their values
  size_t depth = 0;    // arrays and objects inside each other
  size_t digits = 0;   // of the longest number
};

// Takes one pass over the text, which need not be valid JSON. Thread safety: any.
TextSize Measure(std::string_view text);

// The most memory that Parse takes for a text of `bytes`, about: what it works with and the value.
size_t ParseMemory(const TextSize& size, size_t bytes);

// Names that Value::Find and Value::Set have compared so far, in all threads: work that must grow
// with the size of a text and no faster.
uint64_t NumNamesCompared();

}  // namespace sluice::json
