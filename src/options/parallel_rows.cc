#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr std::string_view kGroup = "Several devices";
constexpr std::string_view kOneDevice =
    "one device computes everything, whatever the number; answers do not depend on it";
constexpr std::string_view kOneProcess =
    "one server is one process here; for more, run several behind a balancer and leave this out";

// Those that trtllm-serve spells in its own way.
std::vector<Option> SizeRows() {
  return {
      {.name = "tensor-parallel-size",
       .type = Type::kInteger,
       .default_value = "1",
       .group = kGroup,
       .commands = kEngineArguments,
       .help = "Devices that share each layer.",
       .range = {1, 65536},
       .no_effect = kOneDevice,
       .aliases = "-tp",
       .trtllm = "--tp_size"},
      {.name = "pipeline-parallel-size",
       .type = Type::kInteger,
       .default_value = "1",
       .group = kGroup,
       .commands = kEngineArguments,
       .help = "Devices that share the layers.",
       .range = {1, 65536},
       .no_effect = kOneDevice,
       .aliases = "-pp",
       .trtllm = "--pp_size"},
      {.name = "prefill-context-parallel-size",
       .type = Type::kInteger,
       .default_value = "1",
       .group = kGroup,
       .commands = kEngineArguments,
       .help = "Devices that share a prompt.",
       .range = {1, 65536},
       .no_effect = kOneDevice,
       .aliases = "-pcp",
       .trtllm = "--cp_size|--context_parallel_size"},
      {.name = "ep-size",
       .type = Type::kInteger,
       .default_value = "1",
       .group = kGroup,
       .commands = kEngineArguments,
       .help = "Devices that share the experts.",
       .range = {1, 65536},
       .no_effect = kOneDevice,
       .trtllm = "--moe_expert_parallel_size"},
      {.name = "moe-cluster-parallel-size",
       .type = Type::kInteger,
       .group = kGroup,
       .help = "Groups of devices for the experts.",
       .range = {1, 65536},
       .no_effect = kOneDevice,
       .trtllm = "--cluster_size",
       .dialects = DialectBit(Dialect::kTrtllm)},
      {.name = "gpus-per-node",
       .type = Type::kInteger,
       .group = kGroup,
       .help = "Devices of one machine.",
       .range = {1, 65536},
       .no_effect = kOneDevice,
       .dialects = DialectBit(Dialect::kTrtllm)},
      {.name = "enable-attention-dp",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .help = "Devices that share the sequences in attention.",
       .no_effect = kOneDevice,
       .dialects = DialectBit(Dialect::kTrtllm)},
  };
}

std::vector<Option> OneDeviceRows() {
  const Option common{.group = kGroup, .commands = kEngineArguments, .no_effect = kOneDevice};
  return RowsLike(
      common,
      {
          {"data-parallel-size", Type::kInteger, "Copies of the engine.", "1", "", "-dp"},
          {"data-parallel-size-local", Type::kInteger, "Copies on this machine.", "", "", "-dpl"},
          {"data-parallel-address", Type::kString, "Where copies meet.", "", "", "-dpa"},
          {"data-parallel-rpc-port", Type::kInteger, "Port on which copies meet.", "", "", "-dpp"},
          {"data-parallel-backend", Type::kString, "How copies are started.", "", "mp|ray", "-dpb"},
          {"data-parallel-supervisor-port", Type::kInteger, "Port of the copies' supervisor."},
          {"dp-supervisor-probe-interval-s", Type::kNumber, "Seconds between its probes."},
          {"dp-supervisor-probe-timeout-s", Type::kNumber, "Seconds for a probe."},
          {"dp-supervisor-probe-failure-threshold", Type::kInteger, "Failed probes in a row."},
          {"dp-sync-interval", Type::kInteger, "Steps between meetings of the copies."},
          {"disable-nccl-for-dp-synchronization", Type::kFlag, "Let copies meet without NCCL."},
          {"decode-context-parallel-size", Type::kInteger, "Devices that share a cache.", "1", "",
           "-dcp"},
          {"dcp-comm-backend", Type::kString, "How they exchange.", "", "a2a|ag_rs"},
          {"dcp-q-replicate", Type::kFlag, "Copy queries to them."},
          {"dcp-kv-cache-interleave-size", Type::kInteger, "Tokens in a turn of each."},
          {"cp-kv-cache-interleave-size", Type::kInteger, "Tokens in a turn of each."},
          {"enable-expert-parallel", Type::kFlag, "Share experts between devices.", "", "", "-ep"},
          {"all2all-backend", Type::kString, "How expert inputs travel."},
          {"enable-eplb", Type::kFlag, "Balance experts over devices."},
          {"eplb-config", Type::kJson, "How to balance them."},
          {"expert-placement-strategy", Type::kString, "Where experts go.", "",
           "linear|round_robin"},
          {"enable-ep-weight-filter", Type::kFlag, "Load only a device's own experts."},
          {"enable-elastic-ep", Type::kFlag, "Change the number of devices at run time."},
          {"elastic-ep-max-dp-size", Type::kInteger, "Most copies then."},
          {"enable-fault-tolerance", Type::kFlag, "Go on without a lost device."},
          {"fault-tolerance-config", Type::kJson, "How to."},
          {"enable-dbo", Type::kFlag, "Overlap two half batches."},
          {"dbo-decode-token-threshold", Type::kInteger, "From how many tokens on."},
          {"dbo-prefill-token-threshold", Type::kInteger, "From how many tokens on."},
          {"ubatch-size", Type::kInteger, "Number of part batches."},
          {"enable-hc-sp", Type::kFlag, "Sequence parallelism of hyper connections."},
          {"enable-batch-sharded-sampling", Type::kFlag, "Share sampling between devices."},
          {"enable-shm-tensor-arena", Type::kFlag, "Shared memory between processes."},
          {"distributed-executor-backend", Type::kString, "How devices are driven."},
          {"distributed-timeout-seconds", Type::kNumber, "Patience with other devices."},
          {"cpu-distributed-timeout-seconds", Type::kNumber, "Patience with other processes."},
          {"max-parallel-loading-workers", Type::kInteger, "Devices that load at a time."},
          {"ray-workers-use-nsight", Type::kFlag, "Profile Ray workers."},
          {"disable-custom-all-reduce", Type::kFlag, "Sum over devices by NCCL."},
          {"device-ids", Type::kString, "Which devices."},
          {"numa-bind", Type::kFlag, "Bind workers to NUMA nodes."},
          {"numa-bind-nodes", Type::kStrings, "Which nodes."},
          {"numa-bind-cpus", Type::kStrings, "Which CPUs."},
          {"master-addr", Type::kString, "Where machines meet."},
          {"master-port", Type::kInteger, "Port on which machines meet."},
      });
}

std::vector<Option> OneProcessRows() {
  const Option common{.group = kGroup, .commands = kServe, .refuses = kOneProcess};
  return RowsLike(
      common,
      {
          {"headless", Type::kFlag, "An engine without a server, for another machine's server."},
          {"nnodes", Type::kInteger, "Machines.", "1", "", "-n"},
          {"node-rank", Type::kInteger, "Number of this machine.", "0", "", "-r"},
          {"data-parallel-rank", Type::kInteger, "Number of this copy.", "", "", "-dpn"},
          {"data-parallel-start-rank", Type::kInteger, "First copy here.", "", "", "-dpr"},
          {"data-parallel-hybrid-lb", Type::kFlag, "A balancer for each machine.", "", "", "-dph"},
          {"data-parallel-external-lb", Type::kFlag, "A balancer outside.", "", "", "-dpe"},
          {"data-parallel-multi-port-external-lb", Type::kFlag, "A port for each copy.", "", "",
           "-dpm"},
      });
}

}  // namespace

std::vector<Option> ParallelRows() {
  std::vector<Option> rows = SizeRows();
  for (const auto& part : {OneDeviceRows(), OneProcessRows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sluice::options
