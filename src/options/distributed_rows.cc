// Options for running the ranks of a model, and for their timeouts.
#include "options/rows.h"

namespace sluice::options {

void AddDistributedRows(std::vector<Option>& table) {
  Rows rows(table, "Several devices", kServe);
  rows.Choice(
      "distributed-executor-backend", "", "mp|mpi|uni|external_launcher|ray",
      "How ranks are run. mp, uni, or nothing: as threads of this process, which open no port. "
      "mpi: as processes over MPI, exactly as many as are asked for, which this one starts with "
      "mpirun; they listen at the loopback alone. external_launcher: as processes that mpirun or "
      "Slurm has started, which is recognised without it, too. ray is refused.");
  rows.Number("distributed-timeout-seconds", "300",
              "How long a rank that is another process may take inside a step before the group "
              "fails. One that is killed or stopped is noticed within 4 seconds all the same.",
              {.range = {1, 1e6}, .aliases = "--cpu-distributed-timeout-seconds"});
  rows.Integer("nnodes", "1",
               "Machines that ranks are divided over, evenly. Each runs the same command but for "
               "--node-rank; the first one starts the ranks of all, without ssh, and serves.",
               {.range = {1, 128}, .aliases = "-n"});
  rows.Integer("node-rank", "0", "Which of the machines this is; 0: the first one.",
               {.range = {0, 127}, .aliases = "-r"});
  rows.Text("master-addr", "",
            "Address of the first machine, for the others. The first machine waits there and at no "
            "other address; without it, at the one address that it has.");
  rows.Integer("master-port", "29501", "Port at which the first machine waits for the others.",
               {.range = {1, 65535}});
  rows.Text("distributed-secret", "",
            "Text that the machines of --nnodes share, and nobody else: whoever knows it may let "
            "them start ranks. Better given as SLUICE_DISTRIBUTED_SECRET, out of sight of ps.",
            {.secret = true});
  rows.Flag("headless", "No server on this machine: that of --node-rank 0 serves.");
}

}  // namespace sluice::options
