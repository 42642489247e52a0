// The size of a JSON text in the units that its limits are stated in, before anything is parsed.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::json {

struct TextSize {
  size_t values = 0;  // at least the number of values; each takes some hundred bytes once parsed
  size_t depth = 0;   // arrays and objects inside each other
  size_t digits = 0;  // of the longest number
};

// Takes one pass over the text, which need not be valid JSON. Thread safety: any.
TextSize Measure(std::string_view text);

}  // namespace sluice::json
