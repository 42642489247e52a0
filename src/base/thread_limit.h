// Describes, for error messages, the limits that may keep the system from starting another thread.
#pragma once

#include <filesystem>
#include <string>

namespace sluice {

// Lists the limits on threads that apply to this process, with their values, the lowest first:
// "ulimit -u of this user 512, pids.max of the control group 4096, kernel.threads-max 127000". ""
// if none is known. Reads files below `root`.
std::string ThreadLimits(const std::filesystem::path& root = "/");

// Returns "the system refuses WHAT (REASON): the limits of threads are ...; raise the lowest, or
// ADVICE". `advice` may be empty. If the address space is limited, the message names that limit
// first.
std::string ThreadsRefused(const std::string& what, const std::string& reason,
                           const std::string& advice);

}  // namespace sluice
