// Keeps Open MPI from listening at all addresses of a machine: mpirun, its daemons and the ranks
// bind a single address instead (mpi/listen_guard_library.cc).
#pragma once

#include <map>
#include <string>

#include "base/result.h"

namespace sluice {

// Environment variable of those processes: the numeric IPv4 address to bind.
inline constexpr const char* kListenAddressVariable = "SLUICE_LISTEN_ADDRESS";

// Returns the environment variables for mpirun or its daemon. kUnsupported if sluice_listen.so is
// not installed in the folder of the MPI plugin.
Result<std::map<std::string, std::string>> ListenGuard(const std::string& address);

// Called in a rank after MPI has started: later calls of bind in this process are not changed. Does
// nothing in a rank without kListenAddressVariable, which the user's own launcher has started.
// kUnsupported if the variable is set but the guard library was not loaded.
Status EndListenGuard();

}  // namespace sluice
