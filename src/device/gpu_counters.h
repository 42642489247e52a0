// Reads the energy and the memory of GPUs by NVML, the driver's management library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// libnvidia-ml is opened by the first Read() after a Watch(): the file that the environment
// variable SLUICE_NVML names, else libnvidia-ml.so.1, which comes with the driver. Without it
// nothing can be read. The figures include other programs that use the GPUs.
//
// Thread safety: all methods may be called from any thread.
class GpuCounters {
 public:
  struct Gpu {
    int number = 0;  // in the order of Watch()
    std::string uuid;
    std::optional<double> joules;  // since the GPU's first Read(); nullopt: the GPU has no energy
                                   // counter
    int64_t used_bytes = 0, total_bytes = 0;
  };

  // The counters of the devices that this process has opened (OpenDevice).
  static GpuCounters& OfProcess();

  GpuCounters();
  ~GpuCounters();
  GpuCounters(const GpuCounters&) = delete;
  GpuCounters& operator=(const GpuCounters&) = delete;

  // Adds a GPU, unless it was added before.
  void Watch(const std::string& uuid);
  // Empty if no GPU is watched or can be read; the reason is logged once.
  std::vector<Gpu> Read();

 private:
  struct Library;
  struct Watched {
    std::string uuid;
    void* handle = nullptr;
    bool was_read = false;
    std::optional<uint64_t> first_millijoules = {};
    double joules = 0;  // kept if the GPU can no longer be read
  };

  Mutex mutex_;
  std::unique_ptr<const Library> library_ GUARDED_BY(mutex_);
  bool was_opened_ GUARDED_BY(mutex_) = false;
  std::vector<Watched> watched_ GUARDED_BY(mutex_);
};

}  // namespace sluice
