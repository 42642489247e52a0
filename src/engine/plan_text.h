// Formats sizes in an engine's plan.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace sluice {

inline std::string MemoryText(int64_t bytes) {  // for example "1.5 MiB" or "12.25 GiB"
  const double mib = static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 20);
  return mib < 10000 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

}  // namespace sluice
