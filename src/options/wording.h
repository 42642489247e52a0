// How a bad command line is told: in our words, or in those of the program whose name we run under,
// since scripts and their authors know them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options/option.h"

namespace sluice::options {

// `reason` is what CheckWords said of `words`.
std::string BadValue(Dialect dialect, const Option& option, std::string_view flag,
                     std::span<const std::string> words, const std::string& reason);
std::string MissingValue(Dialect dialect, const Option& option, std::string_view flag);
std::string Ambiguous(Dialect dialect, std::string_view flag,
                      std::span<const std::string> completions);
// `unknown` holds at least one flag; `rest` are further words that nobody takes. The second line of
// the text, where there is one, is a hint.
std::string UnknownFlags(Dialect dialect, std::span<const std::string> unknown,
                         std::span<const std::string> rest, std::span<const std::string> known);

}  // namespace sluice::options
