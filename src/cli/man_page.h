// The manual page of the program.
#pragma once

#include <string>

namespace sluice::cli {

// sluice.1, in the macros of man(7), written from the commands and the table of options.
std::string ManPage();

}  // namespace sluice::cli
