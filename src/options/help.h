// Help and documentation, written from the table.
#pragma once

#include <string>
#include <string_view>

#include "options/option.h"

namespace sluice::options {

// The options of a subcommand for a terminal of 80 columns, by group. `filter` leaves those whose
// name or group contains it; "" and "all" leave all.
std::string OptionHelp(uint32_t command, std::string_view filter = "");

// Those that most people need, one line of at most 80 columns each; "" for a command that has few.
std::string CommonOptionHelp(uint32_t command);

// docs/options.md.
std::string OptionsMarkdown();

}  // namespace sluice::options
