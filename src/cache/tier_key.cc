#include "cache/tier_key.h"

#include <algorithm>
#include <string>

#include <openssl/sha.h>

#include "cache/cache_salt.h"

namespace sluice {

TierKey FirstTierKey(std::string_view salt) {
  constexpr std::string_view kPurpose = "sluice kv block 1 ";
  const std::string text = std::string(kPurpose) + std::string(salt);
  TierKey key;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), key.digest.data());
  key.is_durable = ReadCacheSalt(salt).adapter.empty();
  return key;
}

TierKey NextTierKey(const TierKey& parent, std::span<const int32_t> tokens) {
  constexpr size_t kSmall = 64;  // the tokens of a typical block fit into the buffer
  std::array<unsigned char, 32 + kSmall * sizeof(int32_t)> small;
  std::string large;
  unsigned char* bytes = small.data();
  const size_t size = parent.digest.size() + tokens.size_bytes();
  if (size > small.size()) {
    large.resize(size);
    bytes = reinterpret_cast<unsigned char*>(large.data());
  }
  std::memcpy(bytes, parent.digest.data(), parent.digest.size());
  std::memcpy(bytes + parent.digest.size(), tokens.data(), tokens.size_bytes());
  TierKey key;
  SHA256(bytes, size, key.digest.data());
  key.is_durable =
      parent.is_durable && std::ranges::none_of(tokens, [](int32_t token) { return token < 0; });
  return key;
}

}  // namespace sluice
