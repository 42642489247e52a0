// Ranks as processes that this one starts.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Where ranks run, and the address of this machine at which mpirun, its daemons and the ranks
// listen for each other: the numeric IPv4 address, and no other.
struct RankPlaces {
  std::string address = "127.0.0.1";
  std::vector<std::string> hosts = {};  // on several machines, "address:ranks" each
};

// Starts `num_ranks` processes of this program with the same command line through mpirun, and
// returns the exit code when they have ended. Rank 0 serves. SIGTERM and SIGINT let it drain,
// SIGHUP lets it reload; its standard input is a pipe from this process, so that the ranks end when
// this one does, however it ends. Secrets are in no command line and no environment
// (rank_secrets.h). kUnsupported where there is no mpirun.
// REQUIRES: BlockSignals(kWatched) was called.
Result<int> LaunchRanks(const options::Settings& settings, int num_ranks,
                        const RankPlaces& places = {});

// Tells Open MPI how ranks are to be run, by the environment, which, unlike flags, other
// implementations of MPI ignore. What a user has set stays. `network`: the one between machines,
// "10.55.0.0/24"; "" where they find it themselves.
void SetMpiEnvironment(bool several_machines, const std::string& network);

}  // namespace sluice::cli
