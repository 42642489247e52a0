// Starts ranks as child processes, through mpirun.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// The machines on which ranks run, and this machine's numeric IPv4 address. mpirun, its daemons and
// the ranks listen for each other only at this address.
struct RankPlaces {
  std::string address = "127.0.0.1";
  std::vector<std::string> hosts = {};  // with several machines: "address:ranks" for each
};

// Starts `num_ranks` processes of this program with the same command line through mpirun, and
// returns the exit code once they have ended. Rank 0 serves; it drains on SIGTERM and SIGINT, and
// reloads on SIGHUP. Its standard input is a pipe from this process, so that the ranks end when
// this process ends, for whatever reason. Secrets are not passed in command lines or environments
// (rank_secrets.h). kUnsupported if mpirun is missing. REQUIRES: BlockSignals(kWatched) was called.
Result<int> LaunchRanks(const options::Settings& settings, int num_ranks,
                        const RankPlaces& places = {});

// Configures Open MPI by environment variables, which other MPI implementations ignore, unlike
// flags. Does not override the user's values. `network`: the network between the machines, such as
// "10.55.0.0/24"; "": Open MPI chooses.
void SetMpiEnvironment(bool several_machines, const std::string& network);

}  // namespace sluice::cli
