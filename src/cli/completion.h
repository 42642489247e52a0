// Completion of command lines in shells.
#pragma once

#include <string>

namespace sluice::cli {

// Scripts that complete commands, options, their values, files, folders and the ids of models in
// the cache, written from the table of options. Model ids come from `sluice list` as one completes.
std::string BashCompletion();  // for bash 4.4 and later
std::string ZshCompletion();
std::string FishCompletion();

}  // namespace sluice::cli
