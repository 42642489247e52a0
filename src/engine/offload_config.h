// The tiers that keep blocks evicted from the prefix cache's pool.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sluice {

struct OffloadConfig {
  int64_t ram_bytes = 0;         // total of all engines; 0: no RAM tier
  std::filesystem::path folder;  // folder of the disk tier; "": none
  int64_t disk_bytes = int64_t{32} << 30;
  int64_t disk_bytes_per_second = int64_t{256} << 20;  // maximum write rate; 0: unlimited

  bool has_disk() const { return !folder.empty(); }
  bool is_given() const { return ram_bytes > 0 || has_disk(); }

  bool operator==(const OffloadConfig&) const = default;
};

}  // namespace sluice
