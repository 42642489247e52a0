#include "hardware/topology.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <hwloc.h>
#include <sched.h>

#include "hardware/cgroup.h"

namespace sluice {
namespace {

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  // The kernel rejects a set that is too small for the machine's CPUs, so the set is enlarged until
  // the call succeeds.
  for (int limit = 1024; limit <= 1 << 18; limit *= 4) {
    cpu_set_t* set = CPU_ALLOC(limit);
    const size_t size = CPU_ALLOC_SIZE(limit);
    CPU_ZERO_S(size, set);
    const bool ok = ::sched_getaffinity(0, size, set) == 0;
    for (int cpu = 0; ok && cpu < limit; ++cpu) {
      if (CPU_ISSET_S(cpu, size, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (ok) break;
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int64_t CacheBytes(hwloc_topology_t topology, hwloc_obj_t core, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, type, core);
  return cache == nullptr ? 0 : static_cast<int64_t>(cache->attr->cache.size);
}

void AddCores(hwloc_topology_t hw, const std::vector<int>& allowed, Topology& topology) {
  const std::set<int> usable(allowed.begin(), allowed.end());
  std::map<int, std::vector<int>> nodes;
  const int cores = hwloc_get_nbobjs_by_type(hw, HWLOC_OBJ_CORE);
  for (int i = 0; i < cores; ++i) {  // consecutive cores in hwloc's logical order share caches
    const hwloc_obj_t core = hwloc_get_obj_by_type(hw, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    int cpu = hwloc_bitmap_first(core->cpuset);
    while (cpu >= 0 && !usable.contains(cpu)) cpu = hwloc_bitmap_next(core->cpuset, cpu);
    if (cpu < 0) continue;
    if (topology.core_cpus.empty()) {
      topology.l1_data_bytes = CacheBytes(hw, core, HWLOC_OBJ_L1CACHE);
      topology.l2_bytes = CacheBytes(hw, core, HWLOC_OBJ_L2CACHE);
      topology.l3_bytes = CacheBytes(hw, core, HWLOC_OBJ_L3CACHE);
    }
    topology.core_cpus.push_back(cpu);
    nodes[hwloc_bitmap_first(core->nodeset)].push_back(cpu);
  }
  for (auto& [node, cpus] : nodes) topology.node_cpus.push_back(std::move(cpus));
  topology.numa_nodes = std::max<int>(1, static_cast<int>(topology.node_cpus.size()));
}

}  // namespace

int Topology::DefaultThreads() const {
  int threads = std::max<int>(1, static_cast<int>(core_cpus.size()));
  if (cpu_quota > 0)
    threads = std::min(threads, std::max(1, static_cast<int>(std::ceil(cpu_quota))));
  return threads;
}

Topology DetectTopology() {
  Topology topology;
  const std::vector<int> allowed = AllowedCpus();
  topology.logical_cpus = static_cast<int>(allowed.size());
  topology.cpu_quota = ReadCgroupLimits().cpus.value_or(0);
  hwloc_topology_t hw = nullptr;
  if (hwloc_topology_init(&hw) == 0) {
    if (hwloc_topology_load(hw) == 0) AddCores(hw, allowed, topology);
    hwloc_topology_destroy(hw);
  }
  // If the machine does not report its cores, every CPU counts as a core.
  if (topology.core_cpus.empty()) {
    topology.core_cpus = allowed;
    topology.node_cpus = {allowed};
  }
  return topology;
}

}  // namespace sluice
