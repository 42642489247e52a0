// Values of options as users write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "options/option.h"

namespace sluice::options {

// A whole number: 4096, -1, 1e3, 25.6k. Lower-case k m g t are powers of 1000, upper-case K M G T
// powers of 1024 (whole numbers only), KiB MiB GiB TiB powers of 1024, kB KB MB GB TB powers of
// 1000. kInvalidArgument says what is wrong.
Result<int64_t> ParseInteger(std::string_view text);
Result<double> ParseNumber(std::string_view text);
// true false yes no on off 1 0, in any case.
Result<bool> ParseFlag(std::string_view text);

// The parts of `text` between `separator`s; none of an empty text.
std::vector<std::string_view> Split(std::string_view text, char separator);

// Checks the words given for `option` and brings them into their final form: lists in JSON become
// words, @file becomes its text, words of choices their own spelling. An empty result means "as if
// not given" (None, or an empty text where the option has no default). kInvalidArgument says what
// is expected and found.
Result<std::vector<std::string>> CheckWords(const Option& option, std::vector<std::string> words);

// Whether a value asks for something: it is neither null, false, 0, nor an empty text, list or
// object, nor the word auto or none.
bool AsksForSomething(const json::Value& value);
// Likewise of the words of an option, which are not its default either.
bool AsksForSomething(const Option& option, const std::vector<std::string>& words, Dialect dialect);

}  // namespace sluice::options
