// How much memory this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace sluice {

struct MemoryLimits {
  int64_t total_bytes = 0;  // of the machine, or what a limit allows where that is less
  // Now, without swapping: MemAvailable, or what the control group and the limits of this process
  // (RLIMIT_AS, RLIMIT_DATA) leave.
  int64_t available_bytes = 0;
  // What total_bytes comes from: "control group", "RLIMIT_AS", "RLIMIT_DATA"; "" for the machine.
  std::string_view limited_by = {};
};

// " (limited by its control group)" and the like, to follow an amount; "" where nothing limits it.
std::string LimitNote(const MemoryLimits& limits);

// Reads /proc/meminfo, the control groups, and limits and sizes of this process below `root`.
MemoryLimits ReadMemoryLimits(const std::filesystem::path& root = "/");

}  // namespace sluice
