// How failures are told, and with which exit code: in our words, or as the program does whose name
// we run under.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "options/option.h"
#include "options/settings.h"

namespace sluice::cli {

// The version that stands for what we do under another name ("0.32.0+sluice.0.1.0" for vLLM), and
// our own under ours.
std::string VersionIn(options::Dialect dialect);

// Each prints to standard error and returns the exit code.
int ReportUnknownCommand(options::Dialect dialect, const std::vector<std::string>& words);
// A command line, variable or file that cannot be read.
int ReportUsage(options::Dialect dialect, const Command& command, const Error& error);
// What went wrong while the command ran.
int ReportFailure(const options::Settings& settings, const Error& error);

}  // namespace sluice::cli
