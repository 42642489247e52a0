// How many values a JSON text holds, before anything is made of it.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::json {

// The commas and opening brackets outside strings, and one: at least the number of values. Each
// takes some hundred bytes once parsed. Thread safety: any.
size_t CountValues(std::string_view text);

}  // namespace sluice::json
