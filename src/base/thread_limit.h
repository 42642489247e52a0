// The limits that keep the system from starting another thread, for error messages.
#pragma once

#include <filesystem>
#include <string>

namespace sluice {

// The limits on threads that apply to this process, with their values, the lowest first: "ulimit -u
// of this user 512, pids.max of the control group 4096, kernel.threads-max 127000". "" if none is
// known. Reads files below `root`.
std::string ThreadLimits(const std::filesystem::path& root = "/");

// "the system refuses WHAT (REASON): the limits of threads are ...; raise the lowest, or ADVICE".
// `advice` may be empty. If the address space is limited, that may be the reason, and the message
// names it first.
std::string ThreadsRefused(const std::string& what, const std::string& reason,
                           const std::string& advice);

}  // namespace sluice
