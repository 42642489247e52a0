// Counts what a kernel asks of memory and of tensor cores: what decides its speed, and changes no
// result. A warp's accesses by one instruction are one request.
//
// Shared memory has 32 banks of 4 bytes. A request of 4 bytes a lane is served for all lanes
// together, of 8 bytes for 16 lanes, of 16 bytes (also ldmatrix and the stores of asynchronous
// copies) for 8 lanes, once for each different word that such a group asks of the same bank.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sluice::ptx {

struct Counts {
  int64_t launches = 0;
  int64_t products = 0;        // matrix products of a warp
  int64_t global_bytes = 0;    // read and written, asynchronous copies included
  int64_t sectors = 0;         // of 32 bytes, that the requests for them touch
  int64_t shared_groups = 0;   // groups of lanes that asked for shared memory
  int64_t shared_turns = 0;    // times that it served them; more than groups: bank conflicts
  int64_t most_in_flight = 0;  // bytes of asynchronous copies of a block under way at once
};

// Collects the accesses of a warp's lanes, which run one after the other between two points where
// the warp meets, and counts those of the same instruction, and the same time, together.
class WarpRequests {
 public:
  enum class Kind : uint8_t { kShared, kGlobal };
  void Add(unsigned lane, uint32_t instruction, Kind kind, uint64_t address, uint64_t bytes) {
    lanes_[lane].push_back({instruction, kind, static_cast<uint32_t>(bytes), address});
  }
  // Counts all accesses so far, and forgets them.
  void Count(Counts& counts);

 private:
  struct Access {
    uint32_t instruction;
    Kind kind;
    uint32_t bytes;
    uint64_t address;
  };
  std::array<std::vector<Access>, 32> lanes_;
};

// A page of counts by kernel, in Markdown.
std::string CountsPage(const std::map<std::string, Counts>& kernels);

}  // namespace sluice::ptx
