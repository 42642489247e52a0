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

// Returns the SHA-256 of `text`, which describes the weights, types, layout and program.
TierIdentity IdentityOfText(std::string_view text);

// Converts a name to "DIGEST-GROUP.kv" and back. The latter returns nullopt for other file names.
std::string TierFileName(const TierName& name);
std::optional<TierName> ReadTierFileName(std::string_view file);

// Name prefix of files that are not complete yet.
inline constexpr std::string_view kTierTemporary = "tmp-";

// The size in bytes of the file for a block of `block_bytes` bytes, and the space that it takes on
// disk.
int64_t TierFileBytes(int64_t block_bytes);
int64_t TierDiskBytes(int64_t block_bytes);

// Writes `bytes` as the file of `name` in `folder`, under a temporary name until complete. Error
// codes are those of WriteErrorCode, or kInvalidData if a folder has the file's name. Thread
// safety: several threads of several processes may write.
Status WriteTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                     const TierName& name, std::span<const std::byte> bytes);

// Reads the file of `name` into `bytes` and sets its modification time, which is its time of last
// use, to now. kNotFound if there is no file; kInvalidData if it is incomplete, damaged, or has
// another size, name, identity or version.
Status ReadTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                    const TierName& name, std::span<std::byte> bytes);

}  // namespace sluice
