#include "cache/tier_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <openssl/sha.h>
#include <xxhash.h>

#include "base/hex.h"
#include "base/owned_fd.h"
#include "base/write_error.h"

namespace sluice {
namespace {

constexpr std::array<char, 8> kMagic = {'S', 'L', 'U', 'I', 'C', 'E', 'K', 'V'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kPageBytes = 4096;
constexpr std::string_view kSuffix = ".kv";

// The file's header. Numbers are little-endian, as on all supported machines.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t group = 0;
  TierIdentity identity{};
  std::array<uint8_t, 32> digest{};
  uint64_t block_bytes = 0;
  uint64_t block_low = 0, block_high = 0;  // 128-bit XXH3 of the block's bytes
  uint64_t header_hash = 0;                // 64-bit XXH3 of the header up to this member
};
static_assert(sizeof(Header) == 112);

Header HeaderOf(const TierIdentity& identity, const TierName& name,
                std::span<const std::byte> bytes) {
  Header header;
  header.group = name.group;
  header.identity = identity;
  header.digest = name.digest;
  header.block_bytes = bytes.size();
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  header.block_low = hash.low64;
  header.block_high = hash.high64;
  header.header_hash = XXH3_64bits(&header, offsetof(Header, header_hash));
  return header;
}

std::string SystemReason(int number) {
  return std::generic_category().message(number);
}

tl::unexpected<Error> WriteFailed(const std::filesystem::path& path, int number) {
  return Fail(WriteErrorCode(number, ErrorCode::kInternal),
              fmt::format("{}: {}", path.string(), SystemReason(number)));
}

// Writes everything. Returns 0, or errno of the call that failed.
int WriteAll(int fd, const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return 0;
}

// Fills `data`. Returns false if the file ends early or cannot be read.
bool ReadAll(int fd, void* data, size_t size) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t read = ::read(fd, next, size);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    next += read;
    size -= static_cast<size_t>(read);
  }
  return true;
}

}  // namespace

TierIdentity IdentityOfText(std::string_view text) {
  TierIdentity identity;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), identity.data());
  return identity;
}

std::string TierFileName(const TierName& name) {
  return fmt::format("{}-{}{}", HexDigits(name.digest), name.group, kSuffix);
}

std::optional<TierName> ReadTierFileName(std::string_view file) {
  TierName name;
  if (file.size() < 2 * name.digest.size()) return std::nullopt;
  for (size_t i = 0; i < name.digest.size(); ++i) {
    const char* const digits = file.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, name.digest[i], 16);
    if (error != std::errc() || end != digits + 2) return std::nullopt;
  }
  const std::string_view rest = file.substr(2 * name.digest.size());
  if (!rest.starts_with('-') || !rest.ends_with(kSuffix)) return std::nullopt;
  std::from_chars(rest.data() + 1, rest.data() + rest.size(), name.group);
  // Accepts only the canonical spelling, so that each block has exactly one file.
  return TierFileName(name) == file ? std::optional(name) : std::nullopt;
}

int64_t TierFileBytes(int64_t block_bytes) {
  return block_bytes + static_cast<int64_t>(sizeof(Header));
}

int64_t TierDiskBytes(int64_t block_bytes) {
  return (TierFileBytes(block_bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

Status WriteTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                     const TierName& name, std::span<const std::byte> bytes) {
  static std::atomic<uint64_t> next_temporary{0};
  const std::filesystem::path temporary =
      folder / fmt::format("{}{}-{}", kTierTemporary, ::getpid(), next_temporary.fetch_add(1));
  // Before the file exists, because it may throw.
  const std::filesystem::path path = folder / TierFileName(name);
  const Header header = HeaderOf(identity, name, bytes);
  {
    const OwnedFd file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return WriteFailed(temporary, errno);
    int number = WriteAll(file.get(), &header, sizeof(header));
    if (number == 0) number = WriteAll(file.get(), bytes.data(), bytes.size());
    if (number != 0) {
      ::unlink(temporary.c_str());
      return WriteFailed(temporary, number);
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int number = errno;
    ::unlink(temporary.c_str());
    if (number == EISDIR)
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: a folder is where a block's file belongs", path.string()));
    return WriteFailed(path, number);
  }
  return {};
}

Status ReadTierFile(const std::filesystem::path& folder, const TierIdentity& identity,
                    const TierName& name, std::span<std::byte> bytes) {
  const std::filesystem::path path = folder / TierFileName(name);
  const auto damaged = [&](const char* what) {
    return Fail(ErrorCode::kInvalidData, fmt::format("{}: {}", path.string(), what));
  };
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidData,
                fmt::format("{}: {}", path.string(), SystemReason(errno)));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return damaged("no regular file");
  if (info.st_size != TierFileBytes(static_cast<int64_t>(bytes.size())))
    return damaged("it is of another size");
  Header header;
  if (!ReadAll(file.get(), &header, sizeof(header)) ||
      !ReadAll(file.get(), bytes.data(), bytes.size()))
    return damaged("it cannot be read whole");
  const Header expected = HeaderOf(identity, name, bytes);
  if (header.magic != expected.magic || header.version != expected.version)
    return damaged("it was written by another version");
  if (std::memcmp(&header, &expected, sizeof(header)) != 0)
    return damaged("its checksums differ, or it belongs to other weights");
  ::futimens(file.get(), nullptr);
  return {};
}

}  // namespace sluice
