#include "server/energy_meter.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <system_error>

namespace sluice {
namespace {

constexpr size_t kMostDomains = 64;

std::optional<uint64_t> NumberIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

std::string WordIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Returns the name of a zone. A subzone such as "intel-rapl:0:1" is named "<name of its parent,
// intel-rapl:0>/<own name>".
std::string ZoneName(const std::filesystem::path& zone) {
  const std::string folder = zone.filename().string();
  const size_t colon = folder.rfind(':');
  std::string name = WordIn(zone / "name");
  if (std::ranges::count(folder, ':') > 1)
    name = WordIn(zone.parent_path() / folder.substr(0, colon) / "name") + "/" + name;
  return name;
}

}  // namespace

EnergyMeter::EnergyMeter(const std::filesystem::path& folder) {
  std::error_code error;
  const MutexLock lock(mutex_);
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry(folder, error); !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path zone = entry->path();
    // AMD's counters have the same name prefix. intel-rapl-mmio is skipped, because it would count
    // the same energy twice.
    if (!zone.filename().string().starts_with("intel-rapl:")) continue;
    const std::optional<uint64_t> now = NumberIn(zone / "energy_uj");
    const std::optional<uint64_t> range = NumberIn(zone / "max_energy_range_uj");
    if (!now || !range || counters_.size() == kMostDomains) continue;
    counters_.push_back({zone / "energy_uj", *range, *now, {ZoneName(zone), 0}});
  }
  std::ranges::sort(counters_, {}, [](const Counter& counter) { return counter.domain.name; });
}

std::vector<EnergyMeter::Domain> EnergyMeter::Read() {
  const MutexLock lock(mutex_);
  std::vector<Domain> domains;
  for (Counter& counter : counters_) {
    if (const std::optional<uint64_t> now = NumberIn(counter.file)) {
      const uint64_t taken =
          *now >= counter.last ? *now - counter.last : counter.range - counter.last + *now;
      counter.domain.joules += static_cast<double>(taken) / 1e6;
      counter.last = *now;
    }
    domains.push_back(counter.domain);
  }
  return domains;
}

}  // namespace sluice
