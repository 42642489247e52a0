// Identifies blocks in events by hashes that any program can compute from tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

using BlockDigest = std::array<uint8_t, 32>;  // a SHA-256

// Inputs of a block's hash besides its tokens.
struct BlockKeys {
  std::string_view adapter = {};     // name of the LoRA adapter; "": none
  uint64_t serial = 0;               // serial number of the adapter's content
  std::string_view cache_salt = {};  // for the first block of a sequence; "": none
};

// Seed of the parent hash of first blocks, which is SHA-256 of the seed as CBOR text. vLLM's seed
// is the environment variable PYTHONHASHSEED or, if unset, kDefaultHashSeed.
inline constexpr std::string_view kDefaultHashSeed = "vllm-none-hash";
BlockDigest RootDigest(std::string_view seed = kDefaultHashSeed);

// Returns SHA-256 of the canonical CBOR array [parent as bytes, [token ids], keys]. keys: null if
// there are none, else an array of ["lora", name, serial as text] and ["cache_salt", salt], each if
// set. Without an adapter this equals vLLM's --prefix-caching-hash-algo sha256_cbor.
BlockDigest DigestOfBlock(const BlockDigest& parent, std::span<const int32_t> tokens,
                          const BlockKeys& keys);

// Returns the hash used in events: the digest's last 8 bytes, big-endian.
uint64_t ShortHash(const BlockDigest& digest);

}  // namespace sluice
