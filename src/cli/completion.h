// Completion of command lines in shells.
#pragma once

#include <string>

namespace sluice::cli {

// Scripts that complete commands, options, their values, files, folders and ids of cached models,
// generated from the table of options. Model ids come from running `sluice list`.
std::string BashCompletion();  // for bash 4.4 and later
std::string ZshCompletion();
std::string FishCompletion();

}  // namespace sluice::cli
