// The names that blocks have outside the pool, where their ids mean nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice {

// Names a block by everything up to and including it: SHA-256 of the chain of its tokens, which
// begins with the salt. Equal digests, equal tokens: nobody can make two that are alike. The same
// in every process.
struct TierKey {
  std::array<uint8_t, 32> digest{};
  // False where the tokens or the salt mean something in this process alone: rows of images, whose
  // ids are given out as they come, and adapters, of which the salt has a serial number.
  bool is_durable = true;
};

// The parent of first blocks. `salt`: as MakeCacheSalt makes it.
TierKey FirstTierKey(std::string_view salt);
TierKey NextTierKey(const TierKey& parent, std::span<const int32_t> tokens);

// A block of one group of layers.
struct TierName {
  std::array<uint8_t, 32> digest{};
  uint32_t group = 0;
  bool operator==(const TierName&) const = default;
};

struct TierNameHash {
  size_t operator()(const TierName& name) const {
    size_t hash = 0;
    std::memcpy(&hash, name.digest.data(), sizeof(hash));
    return hash + name.group;
  }
};

}  // namespace sluice
