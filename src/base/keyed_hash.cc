#include "base/keyed_hash.h"

#include <random>

#include <xxhash.h>

namespace sluice {
namespace {

constexpr size_t kSecretBytes = 192;
static_assert(kSecretBytes >= XXH3_SECRET_SIZE_MIN);

}  // namespace

KeyedHash::KeyedHash() : secret_(kSecretBytes) {
  std::random_device random;
  for (unsigned char& byte : secret_) byte = static_cast<unsigned char>(random());
}

KeyedHash::Value KeyedHash::Of(const void* data, size_t size) const {
  const XXH128_hash_t hash = XXH3_128bits_withSecret(data, size, secret_.data(), secret_.size());
  return {hash.high64, hash.low64};
}

}  // namespace sluice
