// The cores that this process may use.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

struct Topology {
  int logical_cpus = 0;  // that the affinity of this process allows
  double cpu_quota = 0;  // CPUs' worth of time that control groups allow; 0: no quota
  std::vector<int>
      core_cpus;       // one allowed CPU of each physical core, the cores of a NUMA node together
  int numa_nodes = 1;  // that those cores belong to
  int64_t l1_data_bytes = 0;  // of one core; 0: unknown
  int64_t l2_bytes = 0;       // of one core
  int64_t l3_bytes = 0;       // that the first core shares

  // One thread for each physical core, no more than the quota pays for, at least one.
  int DefaultThreads() const;
};

Topology DetectTopology();

}  // namespace sluice
