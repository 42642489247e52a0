// Options for running the ranks of a model, and for their timeouts.
#include "options/rows.h"

namespace sluice::options {

void AddDistributedRows(std::vector<Option>& table) {
  Rows rows(table, "Several devices", kServe);
  rows.Choice(
      "distributed-executor-backend", "", "mp|mpi|uni|external_launcher|ray",
      "How ranks run. mp, uni, or not set: as threads of this process, which open no port. mpi: as "
      "processes that this process starts with mpirun, exactly as many as requested; they listen "
      "only on the loopback address. external_launcher: as processes started by mpirun or Slurm, "
      "which is also detected without this option. ray is refused.");
  rows.Number("distributed-timeout-seconds", "300",
              "Timeout in seconds for a step of a rank in another process; then the whole group "
              "fails. A rank that is killed or stopped is always detected within 4 seconds.",
              {.range = {1, 1e6}, .aliases = "--cpu-distributed-timeout-seconds"});
  rows.Integer("nnodes", "1",
               "Number of machines, among which ranks are divided evenly. Each machine runs the "
               "same command except for --node-rank. The first machine starts all ranks, without "
               "ssh, and serves.",
               {.range = {1, 128}, .aliases = "-n"});
  rows.Integer("node-rank", "0", "Number of this machine; 0 is the first.",
               {.range = {0, 127}, .aliases = "-r"});
  rows.Text("master-addr", "",
            "Address of the first machine. The first machine listens only on this address; without "
            "this option, on its only address.");
  rows.Integer("master-port", "29501", "Port on which the first machine waits for the others.",
               {.range = {1, 65535}});
  rows.Text("distributed-secret", "",
            "Secret shared by the machines of --nnodes. Anyone who knows the secret can start "
            "ranks on these machines. Set SLUICE_DISTRIBUTED_SECRET instead, so that the secret is "
            "not visible in ps.",
            {.secret = true});
  rows.Flag("headless",
            "Do not run a server on this machine; the machine of --node-rank 0 serves.");
}

}  // namespace sluice::options
