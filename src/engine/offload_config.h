// Where blocks evicted from the prefix cache's pool are kept.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sluice {

struct OffloadConfig {
  int64_t ram_bytes = 0;         // of all engines together; 0: none
  std::filesystem::path folder;  // "": none
  int64_t disk_bytes = int64_t{32} << 30;
  int64_t disk_bytes_per_second = int64_t{256} << 20;  // write rate; 0: as fast as the disk

  bool has_disk() const { return !folder.empty(); }
  bool is_given() const { return ram_bytes > 0 || has_disk(); }

  bool operator==(const OffloadConfig&) const = default;
};

}  // namespace sluice
