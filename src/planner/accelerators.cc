#include "planner/accelerators.h"

#include <algorithm>

#include "base/ascii.h"

namespace sluice {
namespace {

constexpr int64_t kGb = 1'000'000'000;
constexpr double kTb = 1e12;
constexpr double kGbPerSecond = 1e9;
constexpr double kTeraflops = 1e12;

constexpr Accelerator kAccelerators[] = {
    {"H100", "H100 SXM", 80 * kGb, 0, 3.35 * kTb, 450 * kGbPerSecond, 989 * kTeraflops,
     1979 * kTeraflops, 0, "9.0"},
    {"H200", "", 150'100'000'000, 0, 4.8 * kTb, 450 * kGbPerSecond, 989 * kTeraflops,
     1979 * kTeraflops, 0, "9.0"},
    {"B200", "", 192 * kGb, 0, 8.0 * kTb, 900 * kGbPerSecond, 2250 * kTeraflops, 4500 * kTeraflops,
     9000 * kTeraflops, "10.0"},
    {"GB200", "", 192 * kGb, 0, 8.0 * kTb, 900 * kGbPerSecond, 2500 * kTeraflops, 5000 * kTeraflops,
     10000 * kTeraflops, "10.0"},
    {"GB10", "DGX Spark|Spark", 128 * kGb, 8 * kGb, 0.273 * kTb, 25 * kGbPerSecond,
     125 * kTeraflops, 250 * kTeraflops, 500 * kTeraflops, "12.1"},
    {"MI300X", "", 192 * kGb, 0, 5.3 * kTb, 448 * kGbPerSecond, 1307 * kTeraflops,
     2615 * kTeraflops, 0, ""},
    {"MI355X", "MI355", 309 * kGb, 0, 8.0 * kTb, 538 * kGbPerSecond, 2500 * kTeraflops,
     5000 * kTeraflops, 10000 * kTeraflops, ""},
    {"L40S", "", 48 * kGb, 0, 0.864 * kTb, 32 * kGbPerSecond, 362 * kTeraflops, 733 * kTeraflops, 0,
     "8.9"},
    {"RTX-PRO-6000", "RTX PRO 6000|RTX 6000 Pro|RTX-6000-Pro|RTX6000Pro", 96 * kGb, 0, 1.597 * kTb,
     64 * kGbPerSecond, 500 * kTeraflops, 1000 * kTeraflops, 2000 * kTeraflops, "12.0"},
};

bool SameName(std::string_view a, std::string_view b) {
  return AsciiLower(a) == AsciiLower(b);
}

}  // namespace

std::span<const Accelerator> Accelerators() {
  return kAccelerators;
}

const Accelerator* FindAccelerator(std::string_view name) {
  for (const Accelerator& accelerator : kAccelerators) {
    if (SameName(accelerator.name, name)) return &accelerator;
    for (std::string_view rest = accelerator.names; !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      if (SameName(rest.substr(0, bar), name)) return &accelerator;
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
  }
  return nullptr;
}

}  // namespace sluice
