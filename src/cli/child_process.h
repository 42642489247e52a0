// Programs that this one starts and waits for.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::cli {

// The first executable file of that name in PATH; "" where there is none.
std::string FindInPath(const std::string& name);

// Starts `program`, whose words begin with its name, with `input` as its standard input (-1:
// nothing to read), all signals as at login, in a process group of its own: what a terminal sends
// to this one's group is for this process alone.
Result<pid_t> StartProcess(const std::string& program, std::vector<std::string> words, int input);

// Its exit code, or 128 and the number of the signal that killed it. Waits.
int WaitForProcess(pid_t process);

}  // namespace sluice::cli
