// Measures the processors' energy use with the system's counters (RAPL, /sys/class/powercap).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// Measures the whole machine, not only this process. The system's counters wrap to zero after some
// minutes of full load, so call Read() at shorter intervals.
//
// Thread safety: all methods may be called from any thread.
class EnergyMeter {
 public:
  struct Domain {
    std::string name;   // such as "package-0"; a part such as "dram" has its package's name as
                        // prefix
    double joules = 0;  // since construction of the meter
  };

  explicit EnergyMeter(const std::filesystem::path& folder = "/sys/class/powercap");

  // Reads all counters. Empty if the machine has none, or if this process may not read them.
  std::vector<Domain> Read();

 private:
  struct Counter {
    std::filesystem::path file;
    uint64_t range = 0;  // in microjoules; the counter stays below it
    uint64_t last = 0;
    Domain domain;
  };

  Mutex mutex_;
  std::vector<Counter> counters_ GUARDED_BY(mutex_);
};

}  // namespace sluice
