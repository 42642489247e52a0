// The manual page of the program.
#pragma once

#include <string>

namespace sluice::cli {

// Returns sluice.1 with man(7) macros, generated from the commands and the table of options.
std::string ManPage();

}  // namespace sluice::cli
