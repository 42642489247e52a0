// Starts programs and waits for their end.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::cli {

// Returns the first executable file with this name in PATH; "" if there is none.
std::string FindInPath(const std::string& name);

// The settings for starting a child, besides its command line.
struct ChildOptions {
  int input = -1;  // descriptor for the child's standard input; -1: the input is empty
  // Variables added to the child's environment. The rest is this process's environment without
  // secrets (rank_secrets.h).
  std::map<std::string, std::string> variables = {};
};

// Starts `program` with default signal handling, in a separate process group. So it does not
// receive the signals that a terminal sends to this process's group. `words` begin with the
// program's name.
Result<pid_t> StartProcess(const std::string& program, std::vector<std::string> words,
                           const ChildOptions& options);

// Waits for the process. Returns its exit code, or 128 + the signal that killed it.
int WaitForProcess(pid_t process);

}  // namespace sluice::cli
