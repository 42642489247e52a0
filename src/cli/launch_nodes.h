// Runs ranks on several machines without ssh. Every machine runs the same command except for
// --node-rank. The first machine waits for the others, then runs mpirun; the waiting processes
// start mpirun's daemons on their machines.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Whether --nnodes requests several machines.
bool IsOnSeveralNodes(const options::Settings& settings);

// On the first machine, serves as LaunchRanks does; on the other machines, takes part until the
// first machine ends. Returns the ranks' exit code. kInvalidArgument if ranks cannot be divided
// evenly, if there is no secret, or if a machine does not match the first one: in its secret,
// version, --node-rank, or numbers of machines and ranks. kUnavailable if the machines do not
// connect within --distributed-timeout-seconds.
Result<int> LaunchOnNode(const options::Settings& settings, int num_ranks);

// mpirun calls this instead of ssh: `launch-agent HOST COMMAND...`. Returns the exit code.
inline constexpr std::string_view kLaunchAgent = "launch-agent";
int RunLaunchAgent(const std::vector<std::string>& words);

// `launch-daemon PARENT FILE WORD...` replaces this process by FILE, which is killed when its
// parent process PARENT ends.
inline constexpr std::string_view kLaunchDaemon = "launch-daemon";
int RunLaunchDaemon(const std::vector<std::string>& words);

}  // namespace sluice::cli
