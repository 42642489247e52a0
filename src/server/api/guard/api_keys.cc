#include "server/api/guard/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"

namespace sluice {
namespace {

using Sha256 = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

constexpr size_t kLongApiKey = 8;
constexpr std::string_view kHashedKey = "sha256:";

Sha256 HashOf(const void* data, size_t size) {
  Sha256 hash;
  CHECK(SHA256(static_cast<const unsigned char*>(data), size, hash.data()) != nullptr, "SHA-256");
  return hash;
}

// A random salt, different in each process.
const Sha256& Salt() {
  static const Sha256 salt = [] {
    Sha256 bytes;
    CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "no random bytes");
    return bytes;
  }();
  return salt;
}

Sha256 Salted(const Sha256& hash) {
  std::array<unsigned char, 2 * SHA256_DIGEST_LENGTH> both;
  std::ranges::copy(Salt(), both.begin());
  std::ranges::copy(hash, both.begin() + SHA256_DIGEST_LENGTH);
  return HashOf(both.data(), both.size());
}

// Returns a fingerprint of a text that may be a key. The fingerprint is compared before the costly
// SHA-256 is computed; it is too short to reveal the text.
uint16_t FingerprintOf(std::string_view text) {
  uint64_t seed = 0;
  std::memcpy(&seed, Salt().data(), sizeof seed);
  return static_cast<uint16_t>(XXH3_64bits_withSeed(text.data(), text.size(), seed));
}

std::optional<Sha256> ParseHash(std::string_view digits) {
  Sha256 hash;
  if (digits.size() != 2 * hash.size()) return std::nullopt;
  for (size_t i = 0; i < digits.size(); ++i) {
    const char digit = AsciiLower(digits[i]);
    const bool letter = digit >= 'a' && digit <= 'f';
    if (!letter && (digit < '0' || digit > '9')) return std::nullopt;
    const int value = letter ? digit - 'a' + 10 : digit - '0';
    hash[i / 2] = static_cast<unsigned char>(i % 2 == 0 ? value << 4 : hash[i / 2] | value);
  }
  return hash;
}

tl::unexpected<Error> RefusedKeys(const std::string& file, const std::string& why) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--api-key-file {}: {}", file, why),
              "api-key-file");
}

void WarnOfReaders(const std::string& file) {
  struct stat about {};
  if (stat(file.c_str(), &about) != 0 || (about.st_mode & (S_IROTH | S_IWOTH)) == 0) return;
  LOG_WARNING("http",
              "--api-key-file {}: every user of this machine may {} the keys (mode {:04o}): remove "
              "this permission (chmod o=)",
              file, (about.st_mode & S_IWOTH) != 0 ? "change" : "read", about.st_mode & 07777);
}

}  // namespace

struct ApiKeys::Set {
  std::vector<Sha256> hashes;          // hashes of all keys, salted and sorted
  std::vector<size_t> lengths;         // for long keys whose text is known: their lengths, sorted,
                                       // without duplicates
  std::vector<uint16_t> fingerprints;  // fingerprints of the same keys, sorted

  void Add(const Sha256& hash) { hashes.push_back(Salted(hash)); }
  void Add(std::string_view key) {
    Add(HashOf(key.data(), key.size()));
    if (key.size() < kLongApiKey) return;
    lengths.push_back(key.size());
    fingerprints.push_back(FingerprintOf(key));
  }
  void Add(const Set& other) {
    hashes.insert(hashes.end(), other.hashes.begin(), other.hashes.end());
    lengths.insert(lengths.end(), other.lengths.begin(), other.lengths.end());
    fingerprints.insert(fingerprints.end(), other.fingerprints.begin(), other.fingerprints.end());
  }
  void Sort() {
    std::ranges::sort(hashes);
    std::ranges::sort(lengths);
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    std::ranges::sort(fingerprints);
  }

  bool Knows(std::string_view key) const {
    if (key.empty() || hashes.empty()) return false;
    const Sha256 hash = Salted(HashOf(key.data(), key.size()));
    // The order of salted hashes is unpredictable, so the search time reveals nothing.
    const auto place = std::ranges::lower_bound(hashes, hash);
    return place != hashes.end() && CRYPTO_memcmp(place->data(), hash.data(), hash.size()) == 0;
  }

  static std::shared_ptr<const Set> Of(const std::vector<std::string>& keys) {
    auto set = std::make_shared<Set>();
    for (const std::string& key : keys) {
      if (!key.empty()) set->Add(key);
    }
    set->Sort();
    return set;
  }

  // Reads the keys in `file` and adds `fixed`, the keys from the command line.
  static Result<std::shared_ptr<const Set>> Read(const std::string& file, const Set& fixed) {
    auto read = ReadFile(file, kMaxApiKeyFileBytes);
    if (!read) return RefusedKeys(file, read.error().message);
    auto set = std::make_shared<Set>();
    std::string_view rest = *read;
    for (int line_number = 1; !rest.empty(); ++line_number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = AsciiTrim(rest.substr(0, end), " \t\r");
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.empty() || line.starts_with('#')) continue;
      const auto refused = [&](const std::string& why) {
        return RefusedKeys(file, fmt::format("line {}: {}", line_number, why));
      };
      if (set->hashes.size() == kMaxApiKeys)
        return refused(fmt::format("expected at most {} keys", kMaxApiKeys));
      if (line.starts_with(kHashedKey)) {
        const std::optional<Sha256> hash = ParseHash(line.substr(kHashedKey.size()));
        if (!hash) return refused("expected 64 hexadecimal digits after sha256:");
        set->Add(*hash);
        continue;
      }
      if (line.size() > kMaxApiKeyBytes) {
        return refused(fmt::format("expected a key of at most {} characters, found {}",
                                   kMaxApiKeyBytes, line.size()));
      }
      const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
      if (!std::ranges::all_of(line, is_visible)) {
        return refused(
            "expected one key, of visible ASCII characters, found a blank or another character; "
            "put comments on separate lines");
      }
      set->Add(line);
    }
    OPENSSL_cleanse(read->data(), read->size());
    if (set->hashes.empty())
      return RefusedKeys(file,
                         "expected at least one key, found none: no request could be authorized");
    set->Add(fixed);
    set->Sort();
    return set;
  }
};

ApiKeys::ApiKeys(const std::vector<std::string>& keys) : fixed_(Set::Of(keys)), set_(fixed_) {}

ApiKeys::~ApiKeys() = default;

Result<std::shared_ptr<ApiKeys>> ApiKeys::Load(const std::vector<std::string>& keys,
                                               const std::string& file) {
  auto loaded = std::make_shared<ApiKeys>(keys);
  if (file.empty()) return loaded;
  loaded->file_ = file;
  ASSIGN_OR_RETURN(std::shared_ptr<const Set> set, Set::Read(file, *loaded->fixed_));
  WarnOfReaders(file);
  const MutexLock lock(loaded->mutex_);
  loaded->set_ = std::move(set);
  return loaded;
}

std::shared_ptr<const ApiKeys::Set> ApiKeys::set() const {
  const MutexLock lock(mutex_);
  return set_;
}

bool ApiKeys::Knows(std::string_view key) const {
  return set()->Knows(key);
}

bool ApiKeys::FoundIn(std::string_view text) const {
  const std::shared_ptr<const Set> known = set();
  if (known->Knows(text)) return true;
  for (const size_t length : known->lengths) {
    for (size_t begin = 0; begin + length <= text.size(); ++begin) {
      const std::string_view part = text.substr(begin, length);
      if (std::ranges::binary_search(known->fingerprints, FingerprintOf(part)) &&
          known->Knows(part))
        return true;
    }
  }
  return false;
}

void ApiKeys::Reload() {
  if (!has_file()) return;
  auto read = Set::Read(file_, *fixed_);
  if (!read) {
    LOG_ERROR("http", "reloading the API keys failed; the old keys stay valid: {}",
              read.error().message);
    return;
  }
  WarnOfReaders(file_);
  const size_t count = (*read)->hashes.size() - fixed_->hashes.size();
  {
    const MutexLock lock(mutex_);
    set_ = *std::move(read);
  }
  LOG_INFO("http", "requests need one of the {} API keys that --api-key-file {} contains now{}",
           count, file_, fixed_->hashes.empty() ? "" : ", or one of --api-key");
}

}  // namespace sluice
