// Programs that this one starts and waits for.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::cli {

// The first executable file of that name in PATH; "" where there is none.
std::string FindInPath(const std::string& name);

// How a child is started beside its command line.
struct ChildOptions {
  int input = -1;  // its standard input; -1: nothing to read
  // Added to this process's environment, which a child gets without the secrets in it
  // (rank_secrets.h).
  std::map<std::string, std::string> variables = {};
};

// Starts `program`, whose words begin with its name, all signals as at login, in a process group of
// its own: what a terminal sends to this one's group is for this process alone.
Result<pid_t> StartProcess(const std::string& program, std::vector<std::string> words,
                           const ChildOptions& options);

// Its exit code, or 128 and the number of the signal that killed it. Waits.
int WaitForProcess(pid_t process);

}  // namespace sluice::cli
