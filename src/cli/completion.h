// Shell completion of command lines.
#pragma once

#include <string>

namespace sluice::cli {

// Return scripts that complete commands, options, their values, files, folders and ids of cached
// models. They are generated from the table of options; model ids come from running `sluice list`.
std::string BashCompletion();  // for bash 4.4 and later
std::string ZshCompletion();
std::string FishCompletion();

}  // namespace sluice::cli
