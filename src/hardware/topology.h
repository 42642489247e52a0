// The cores that this process may use.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

struct Topology {
  int logical_cpus = 0;        // allowed by the process's affinity
  double cpu_quota = 0;        // in CPUs, set by control groups; 0: no quota
  std::vector<int> core_cpus;  // one allowed CPU of each physical core, grouped by NUMA node
  int numa_nodes = 1;          // number of nodes of those cores
  std::vector<std::vector<int>> node_cpus;  // core_cpus by node
  int64_t l1_data_bytes = 0;                // per core; 0: unknown
  int64_t l2_bytes = 0;                     // per core
  int64_t l3_bytes = 0;                     // of the L3 cache that the first core uses

  // One thread per physical core, limited by the quota; at least one.
  int DefaultThreads() const;
};

Topology DetectTopology();

}  // namespace sluice
