// Parses the values of options as users write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "options/option.h"

namespace sluice::options {

// Parses a whole number: 4096, -1, 1e3, 25.6k. Powers of 1000: k m g t, kB KB MB GB TB. Powers of
// 1024: KiB MiB GiB TiB and, only after whole numbers, K M G T. kInvalidArgument explains what is
// wrong.
Result<int64_t> ParseInteger(std::string_view text);
Result<double> ParseNumber(std::string_view text);
// Accepts true false yes no on off 1 0, in any case.
Result<bool> ParseFlag(std::string_view text);

// Returns the parts of `text` between `separator`s; empty for an empty text.
std::vector<std::string_view> Split(std::string_view text, char separator);

// Checks the words for `option` and normalizes them: JSON lists become words, @file becomes the
// file's text, choices get their canonical spelling. An empty result means "not given" (None, or an
// empty text if the option has no default). kInvalidArgument states what was expected and found.
Result<std::vector<std::string>> CheckWords(const Option& option, std::vector<std::string> words);

// Whether a value requests something: it is not null, false, 0, an empty text, list or object, nor
// the word auto or none.
bool AsksForSomething(const json::Value& value);
// Like the function above, for an option's words, which must also differ from the option's default.
bool AsksForSomething(const Option& option, const std::vector<std::string>& words, Dialect dialect);

}  // namespace sluice::options
