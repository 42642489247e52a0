// Names of blocks outside the pool, where block ids have no meaning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice {

// Names a block by all tokens up to and including its own: the SHA-256 of the chain of tokens,
// which begins with the salt. Equal digests imply equal tokens, because nobody can construct a
// collision. Keys are the same in every process.
struct TierKey {
  std::array<uint8_t, 32> digest{};
  // False if the tokens or the salt have a meaning only in this process: image rows, whose ids are
  // assigned in order of arrival, and adapters, whose serial number is in the salt.
  bool is_durable = true;
};

// Returns the key that serves as parent of first blocks. `salt`: made by MakeCacheSalt.
TierKey FirstTierKey(std::string_view salt);
TierKey NextTierKey(const TierKey& parent, std::span<const int32_t> tokens);

// Names a block of one group of layers.
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
