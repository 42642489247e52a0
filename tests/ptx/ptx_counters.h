// Counts a kernel's accesses to memory and its uses of tensor cores, which determine its speed but
// not its results. The accesses of a warp by one instruction are one request.
//
// Shared memory has 32 banks of 4 bytes. The lanes of a request are served in groups: all lanes
// together for 4 bytes per lane, 16 lanes for 8 bytes, 8 lanes for 16 bytes (also for ldmatrix and
// the stores of asynchronous copies). A group takes one turn for each different word in the same
// bank.
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
  int64_t sectors = 0;         // sectors of 32 bytes that the requests for these bytes touch
  int64_t shared_groups = 0;   // groups of lanes that accessed shared memory
  int64_t shared_turns = 0;    // turns that served them; more turns than groups: bank conflicts
  int64_t most_in_flight = 0;  // maximum bytes of a block's asynchronous copies in flight
};

// Collects the accesses of a warp's lanes, which run one after another between two points where the
// warp synchronizes. Accesses by the same execution of an instruction are counted as one request.
class WarpRequests {
 public:
  enum class Kind : uint8_t { kShared, kGlobal };
  void Add(unsigned lane, uint32_t instruction, Kind kind, uint64_t address, uint64_t bytes) {
    lanes_[lane].push_back({instruction, kind, static_cast<uint32_t>(bytes), address});
  }
  // Counts all accesses so far and removes them.
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

// Returns a page of the counts by kernel, in Markdown.
std::string CountsPage(const std::map<std::string, Counts>& kernels);

}  // namespace sluice::ptx
