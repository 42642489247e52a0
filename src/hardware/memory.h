// How much memory this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace sluice {

struct MemoryLimits {
  int64_t total_bytes = 0;  // the machine's memory, or a lower limit
  // Available now, without swapping: MemAvailable, or less if the control group or the limits of
  // this process (RLIMIT_AS, RLIMIT_DATA) leave less.
  int64_t available_bytes = 0;
  // The limit that determines total_bytes: "control group", "RLIMIT_AS" or "RLIMIT_DATA"; "" if the
  // machine's memory is the limit.
  std::string_view limited_by = {};
};

// Text to append to an amount, such as " (limited by its control group)"; "" if not limited.
std::string LimitNote(const MemoryLimits& limits);

// Reads /proc/meminfo, the control groups, and this process's limits and sizes, all below `root`.
MemoryLimits ReadMemoryLimits(const std::filesystem::path& root = "/");

}  // namespace sluice
