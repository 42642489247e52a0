// The file of one block on disk.
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

// Everything that the bits of a block depend on but its tokens: weights, types, layout, program.
using TierIdentity = std::array<uint8_t, 32>;

// SHA-256 of a text that tells all of it.
TierIdentity IdentityOfText(std::string_view text);

// Lowercase hexadecimal digits.
std::string TierHex(std::span<const uint8_t> bytes);

// DIGEST-GROUP.kv, and back; none for other names.
std::string TierFileName(const TierName& name);
std::optional<TierName> ReadTierFileName(std::string_view file);

// What unfinished files are called: they begin with this.
inline constexpr std::string_view kTierTemporary = "tmp-";

// A file of a block of so many bytes, and what it takes on the disk.
int64_t TierFileBytes(int64_t block_bytes);
int64_t TierDiskBytes(int64_t block_bytes);

// Writes `bytes` as the file of `name` in `folder`, under a name of its own until it is whole. The
// error's code is that of WriteErrorCode. Thread safety: several threads may write, of several
// processes.
Status WriteTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                     const TierName& name, std::span<const std::byte> bytes);

// Reads it into `bytes`. kNotFound if there is none; kInvalidData if it is not whole, damaged, or
// of something else: of other bytes, another name, identity or version. The file then counts as
// used now (its modification time).
Status ReadTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                    const TierName& name, std::span<std::byte> bytes);

}  // namespace sluice
