// The cores that this process may use.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

struct Topology {
  int logical_cpus = 0;        // number of CPUs that the process's affinity allows
  double cpu_quota = 0;        // limit in CPUs, set by control groups; 0: no quota
  std::vector<int> core_cpus;  // one allowed CPU of each physical core, grouped by NUMA node
  int numa_nodes = 1;          // number of NUMA nodes that have a core in core_cpus
  std::vector<std::vector<int>> node_cpus;  // core_cpus of each NUMA node
  int64_t l1_data_bytes = 0;                // of each core; 0: unknown
  int64_t l2_bytes = 0;                     // of each core
  int64_t l3_bytes = 0;                     // size of the L3 cache that the first core uses

  // One thread per physical core, limited by the quota; at least one.
  int DefaultThreads() const;
};

Topology DetectTopology();

}  // namespace sluice
