#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/thread_pool.h"
#include "hardware/cgroup.h"
#include "hardware/cpu_features.h"
#include "hardware/measure.h"
#include "hardware/memory.h"
#include "hardware/topology.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A folder that represents a machine's root.
class FakeMachine {
 public:
  FakeMachine()
      : root_(fs::temp_directory_path() / ("sluice-machine-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
  }
  ~FakeMachine() { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

TEST(Cgroup, NothingToReadSetsNoLimit) {
  FakeMachine machine;
  const CgroupLimits limits = ReadCgroupLimits(machine.root());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
  EXPECT_FALSE(limits.memory_free_bytes);
}

TEST(Cgroup, Version2TakesTheTightestLimitOfAllAncestors) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "0::/outer/inner\n");
  machine.Write("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  machine.Write("sys/fs/cgroup/outer/memory.max", "8000\n");
  machine.Write("sys/fs/cgroup/outer/memory.current", "5000\n");
  machine.Write("sys/fs/cgroup/outer/memory.stat", "anon 3000\ninactive_file 1000\n");
  machine.Write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  machine.Write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  const CgroupLimits limits = ReadCgroupLimits(machine.root());
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, 8000);
  EXPECT_EQ(limits.memory_free_bytes, 4000);
}

TEST(Cgroup, Version1WithJoinedControllers) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup",
                "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  // Inside the container, the group's own path is not mounted.
  machine.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
  machine.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n");
  machine.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  machine.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = ReadCgroupLimits(machine.root());
  EXPECT_EQ(limits.cpus, 2.0);
  EXPECT_EQ(limits.memory_bytes, 1000000);
  EXPECT_EQ(limits.memory_free_bytes, 600000);
}

TEST(Cgroup, Version1WithoutLimits) {
  FakeMachine machine;
  machine.Write("proc/self/cgroup", "4:memory:/\n1:cpu:/\n");
  machine.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  machine.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = ReadCgroupLimits(machine.root());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST(Memory, TheControlGroupLowersWhatTheMachineHas) {
  FakeMachine machine;
  machine.Write("proc/meminfo",
                "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n");
  MemoryLimits limits = ReadMemoryLimits(machine.root());
  EXPECT_EQ(limits.total_bytes, 1024000);
  EXPECT_EQ(limits.available_bytes, 614400);
  EXPECT_EQ(limits.limited_by, "");
  machine.Write("proc/self/cgroup", "0::/\n");
  machine.Write("sys/fs/cgroup/memory.max", "500000\n");
  machine.Write("sys/fs/cgroup/memory.current", "100000\n");
  limits = ReadMemoryLimits(machine.root());
  EXPECT_EQ(limits.total_bytes, 500000);
  EXPECT_EQ(limits.available_bytes, 400000);
  EXPECT_EQ(limits.limited_by, "control group");
}

TEST(Memory, LimitsOfTheProcessLowerIt) {
  FakeMachine machine;
  machine.Write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    600 kB\n");
  machine.Write("proc/self/status", "Name: x\nVmSize:     100 kB\nVmData:      50 kB\n");
  const auto limits = [&](const char* data, const char* address_space) {
    machine.Write("proc/self/limits",
                  fmt::format("Limit                     Soft Limit           Hard Limit    Units\n"
                              "Max data size             {:<20} unlimited     bytes\n"
                              "Max address space         {:<20} unlimited     bytes\n",
                              data, address_space));
    return ReadMemoryLimits(machine.root());
  };
  MemoryLimits memory = limits("unlimited", "409600");
  EXPECT_EQ(memory.total_bytes, 409600);
  EXPECT_EQ(memory.available_bytes, 300 * 1024);
  EXPECT_EQ(memory.limited_by, "RLIMIT_AS");
  memory = limits("204800", "409600");
  EXPECT_EQ(memory.total_bytes, 204800);
  EXPECT_EQ(memory.available_bytes, 150 * 1024);
  EXPECT_EQ(memory.limited_by, "RLIMIT_DATA");
  // The limit is less than the process already uses.
  EXPECT_EQ(limits("unlimited", "1024").available_bytes, 0);
  EXPECT_EQ(limits("unlimited", "unlimited").limited_by, "");
}

TEST(Memory, ThisMachineHasSome) {
  const MemoryLimits limits = ReadMemoryLimits();
  EXPECT_GT(limits.total_bytes, 0);
  EXPECT_GT(limits.available_bytes, 0);
  EXPECT_LE(limits.available_bytes, limits.total_bytes);
}

TEST(Topology, ThisMachineHasCores) {
  const Topology topology = DetectTopology();
  EXPECT_GE(topology.logical_cpus, 1);
  ASSERT_FALSE(topology.core_cpus.empty());
  EXPECT_LE(static_cast<int>(topology.core_cpus.size()), topology.logical_cpus);
  EXPECT_GE(topology.DefaultThreads(), 1);
  EXPECT_LE(topology.DefaultThreads(), static_cast<int>(topology.core_cpus.size()));
}

TEST(Topology, AQuotaLimitsTheThreads) {
  Topology topology;
  topology.core_cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(topology.DefaultThreads(), 8);
  topology.cpu_quota = 2.5;
  EXPECT_EQ(topology.DefaultThreads(), 3);
  topology.cpu_quota = 0.1;
  EXPECT_EQ(topology.DefaultThreads(), 1);
}

TEST(CpuFeatures, WiderInstructionsImplyNarrowerOnes) {
  const CpuFeatures& features = DetectCpuFeatures();
  EXPECT_TRUE(features.avx2 || !(features.avx512 || features.avx_vnni));
  EXPECT_TRUE(features.avx512 || !(features.avx512_bf16 || features.avx512_vnni ||
                                   features.avx512_vbmi || features.amx_bf16));
  EXPECT_TRUE(features.neon ||
              !(features.neon_dotprod || features.neon_bf16 || features.neon_i8mm));
}

TEST(Measure, FindsAFigureForEverythingTheCpuHas) {
  ThreadPool pool(1);
  const CpuFeatures& features = DetectCpuFeatures();
  EXPECT_GT(MeasureReadBandwidth(pool), 1e7);
  EXPECT_EQ(MeasureFp32Peak(pool) > 0, features.avx2 || features.neon);
  EXPECT_EQ(MeasureAvx512Bf16Peak(pool) > 0, features.avx512_bf16);
  EXPECT_EQ(MeasureAmxBf16Peak(pool) > 0, features.amx_bf16);
  EXPECT_EQ(MeasureNeonBf16Peak(pool) > 0, features.neon_bf16);
}

}  // namespace
}  // namespace sluice
