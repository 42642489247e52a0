// Reports errors in the command line. The exit codes depend on the program's name.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "options/option.h"
#include "options/settings.h"

namespace sluice::cli {

// Returns the version as the program shows it under each name: "0.33.0+sluice.0.1.0" for vLLM.
std::string VersionIn(options::Dialect dialect);

// Each of these prints to standard error and returns the exit code.
int ReportUnknownCommand(options::Dialect dialect, const std::vector<std::string>& words);
// Reports an invalid command line, variable or file.
int ReportUsage(options::Dialect dialect, const Command& command, const Error& error);
// Reports an error of a running command.
int ReportFailure(const options::Settings& settings, const Error& error);

}  // namespace sluice::cli
