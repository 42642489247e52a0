// Keeps Open MPI from listening at all addresses of a machine: mpirun, its daemons and the ranks
// bind one address instead (mpi/listen_guard_library.cc).
#pragma once

#include <map>
#include <string>

#include "base/result.h"

namespace sluice {

// In the environment of those processes: the numeric IPv4 address.
inline constexpr const char* kListenAddressVariable = "SLUICE_LISTEN_ADDRESS";

// The variables with which mpirun or its daemon is to be started. kUnsupported where
// sluice_listen.so is not beside the MPI plugin.
Result<std::map<std::string, std::string>> ListenGuard(const std::string& address);

// In a rank whose MPI has started: what this process binds from here on is its own affair. Nothing
// happens in a rank that a launcher of the user has started. kUnsupported where the rank was to be
// guarded and was not.
Status EndListenGuard();

}  // namespace sluice
