// Reads and writes the file of one block on disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/tier_key.h"

namespace sluice {

// Hash of everything that determines a block's bytes, except its tokens: weights, types, layout,
// program.
using TierIdentity = std::array<uint8_t, 32>;

// SHA-256 of a text that describes all of this.
TierIdentity IdentityOfText(std::string_view text);

// Converts a name to "DIGEST-GROUP.kv" and back; nullopt for other file names.
std::string TierFileName(const TierName& name);
std::optional<TierName> ReadTierFileName(std::string_view file);

// Prefix of the names of incomplete files.
inline constexpr std::string_view kTierTemporary = "tmp-";

// Size of the file of a block of `block_bytes`, and the space that it takes on the disk.
int64_t TierFileBytes(int64_t block_bytes);
int64_t TierDiskBytes(int64_t block_bytes);

// Writes `bytes` as the file of `name` in `folder`, under a temporary name until it is complete.
// Error codes are those of WriteErrorCode, or kInvalidData if a folder of that name exists. Thread
// safety: several threads of several processes may write.
Status WriteTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                     const TierName& name, std::span<const std::byte> bytes);

// Reads the file of `name` into `bytes` and sets its modification time to now, its time of last
// use. kNotFound if there is no file; kInvalidData if it is incomplete, damaged, or of another
// size, name, identity or version.
Status ReadTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                    const TierName& name, std::span<std::byte> bytes);

}  // namespace sluice
