// Replaces the contents of requests by keyed hashes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::recording {

// Number of tokens in a hashed block.
inline constexpr int64_t kHashedTokens = 16;

using HashKey = std::array<unsigned char, 32>;
HashKey RandomHashKey();

// Returns 64 bits for each whole block of `tokens`, from a SHA-256 of the key and all tokens up to
// the block's end. Without the key, nobody can find out which tokens a hash represents.
std::vector<uint64_t> HashBlocks(const HashKey& key, std::span<const int32_t> tokens);

// Appends `events` (whole events) to `out` without token ids, bodies, request ids and names of
// adapters. Prompts become hashes, tokens become 0, and lists of tokens in sampling parameters
// become empty.
void AppendRedacted(const HashKey& key, std::string_view events, std::string& out);

}  // namespace sluice::recording
