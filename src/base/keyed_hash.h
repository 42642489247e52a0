// Hashes for which an attacker cannot construct collisions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice {

// XXH3 in 128 bits with a random secret for each object, so that an attacker cannot construct two
// inputs with the same hash. Thread safety: immutable after construction.
class KeyedHash {
 public:
  using Value = std::array<uint64_t, 2>;  // the upper and the lower 64 bits

  KeyedHash();
  Value Of(const void* data, size_t size) const;
  Value Of(std::string_view text) const { return Of(text.data(), text.size()); }

 private:
  std::vector<unsigned char> secret_;
};

}  // namespace sluice
