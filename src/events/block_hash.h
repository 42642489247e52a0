// Names of blocks in events: hashes that any program can compute from tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

using BlockDigest = std::array<uint8_t, 32>;  // of SHA-256

// Data in a block's hash besides tokens.
struct BlockKeys {
  std::string_view adapter = {};     // name of the LoRA adapter; "": none
  uint64_t serial = 0;               // changes with the adapter's content
  std::string_view cache_salt = {};  // for the first block of a sequence; "": none
};

// The parent of first blocks: SHA-256 of `seed` as CBOR text. vLLM's seed is the variable
// PYTHONHASHSEED or, if unset, kDefaultHashSeed.
inline constexpr std::string_view kDefaultHashSeed = "vllm-none-hash";
BlockDigest RootDigest(std::string_view seed = kDefaultHashSeed);

// SHA-256 of the canonical CBOR array [parent as bytes, [token ids], keys]. keys: null if there are
// none, else an array of ["lora", name, serial as text] and ["cache_salt", salt], if given. Without
// an adapter this equals vLLM's --prefix-caching-hash-algo sha256_cbor.
BlockDigest DigestOfBlock(const BlockDigest& parent, std::span<const int32_t> tokens,
                          const BlockKeys& keys);

// The hash in events: the last 8 bytes, big-endian.
uint64_t ShortHash(const BlockDigest& digest);

}  // namespace sluice
