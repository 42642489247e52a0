// Ranks on several machines, without ssh: every machine runs the same command but for --node-rank.
// The first one waits for the others, then runs mpirun, whose daemons for the other machines are
// started by the processes that wait there.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Whether --nnodes asks for several machines.
bool IsOnSeveralNodes(const options::Settings& settings);

// On the first machine: serves, as LaunchRanks does; on the others: takes part until the first one
// ends. The exit code of the ranks. kInvalidArgument where the ranks cannot be divided evenly,
// where there is no secret, or where a machine has another secret, version or number; kUnavailable
// where the machines do not meet in --distributed-timeout-seconds.
Result<int> LaunchOnNode(const options::Settings& settings, int num_ranks);

// What mpirun calls in place of ssh: `launch-agent HOST COMMAND...`. Returns the exit code.
inline constexpr std::string_view kLaunchAgent = "launch-agent";
int RunLaunchAgent(const std::vector<std::string>& words);

// `launch-daemon PARENT FILE WORD...` becomes that program, which ends when process PARENT, which
// has called it, does.
inline constexpr std::string_view kLaunchDaemon = "launch-daemon";
int RunLaunchDaemon(const std::vector<std::string>& words);

}  // namespace sluice::cli
