// Writes help and documentation from the table of options.
#pragma once

#include <string>
#include <string_view>

#include "options/option.h"

namespace sluice::options {

// Lists the options of a subcommand by group, for a terminal of 80 columns. `filter` selects
// options whose name or group contains it; "" and "all" select all.
std::string OptionHelp(Commands command, std::string_view filter = "");

// Lists the most common options, in one line of at most 80 columns each; "" for a command with few
// options.
std::string CommonOptionHelp(Commands command);

// Returns the content of docs/options.md.
std::string OptionsMarkdown();

}  // namespace sluice::options
