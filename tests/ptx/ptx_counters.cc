#include "ptx_counters.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace sluice::ptx {
namespace {

constexpr unsigned kBanks = 32, kWordBytes = 4, kSectorBytes = 32;

// Returns the number of turns in which shared memory serves one group of lanes.
int64_t TurnsOf(const std::vector<std::pair<uint64_t, uint32_t>>& accesses) {
  std::array<std::set<uint64_t>, kBanks> words;
  for (const auto& [address, bytes] : accesses) {
    for (uint64_t word = address / kWordBytes; word * kWordBytes < address + bytes; ++word)
      words[word % kBanks].insert(word);
  }
  size_t most = 0;
  for (const auto& of_bank : words) most = std::max(most, of_bank.size());
  return static_cast<int64_t>(most);
}

}  // namespace

void WarpRequests::Count(Counts& counts) {
  // Keyed by the instruction, and by how often the lane has reached it.
  std::map<std::tuple<uint32_t, uint32_t, Kind>,
           std::vector<std::tuple<unsigned, uint64_t, uint32_t>>>
      requests;
  for (unsigned lane = 0; lane < lanes_.size(); ++lane) {
    std::map<std::pair<uint32_t, Kind>, uint32_t> times;
    for (const Access& access : lanes_[lane]) {
      const uint32_t time = times[{access.instruction, access.kind}]++;
      requests[{access.instruction, time, access.kind}].emplace_back(lane, access.address,
                                                                     access.bytes);
    }
    lanes_[lane].clear();
  }
  for (const auto& [key, accesses] : requests) {
    const uint32_t bytes = std::get<2>(accesses.front());
    if (std::get<2>(key) == Kind::kGlobal) {
      std::set<uint64_t> sectors;
      for (const auto& [lane, address, size] : accesses) {
        counts.global_bytes += size;
        for (uint64_t at = address / kSectorBytes; at * kSectorBytes < address + size; ++at)
          sectors.insert(at);
      }
      counts.sectors += static_cast<int64_t>(sectors.size());
      continue;
    }
    const unsigned group_lanes = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    std::map<unsigned, std::vector<std::pair<uint64_t, uint32_t>>> groups;
    for (const auto& [lane, address, size] : accesses)
      groups[lane / group_lanes].emplace_back(address, size);
    for (const auto& [group, of_group] : groups) {
      ++counts.shared_groups;
      counts.shared_turns += TurnsOf(of_group);
    }
  }
}

std::string CountsPage(const std::map<std::string, Counts>& kernels) {
  std::string page =
      "# Memory accesses of the CUDA kernels\n"
      "\n"
      "The PTX interpreter in `tests/ptx` counts these figures while it runs the small shapes\n"
      "of `sluice selftest`, on PTX from nvcc 13.0 for compute capability 9.0. `tests/run.py\n"
      "cuda` compares its counts with this page. The counts affect only the speed of a kernel,\n"
      "so no other test would detect a change.\n"
      "\n"
      "- Products: tensor core instructions (`mma`), counted per warp.\n"
      "- Global bytes, sectors: bytes read from and written to global memory, and the number of\n"
      "  32-byte sectors accessed. More sectors for the same number of bytes mean more\n"
      "  scattered accesses.\n"
      "- Shared groups, turns: the number of accesses by a group of lanes to shared memory, and\n"
      "  the number of passes (wavefronts) that shared memory needs for them. More turns than\n"
      "  groups mean bank conflicts.\n"
      "- In flight: the maximum number of bytes that a block's asynchronous copies have in\n"
      "  flight at the same time.\n"
      "\n"
      "| kernel | launches | products | global bytes | sectors | shared groups | turns | in flight "
      "|\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& [name, c] : kernels)
    page +=
        fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |\n", name, c.launches, c.products,
                    c.global_bytes, c.sectors, c.shared_groups, c.shared_turns, c.most_in_flight);
  return page;
}

}  // namespace sluice::ptx
