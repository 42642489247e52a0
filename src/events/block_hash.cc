#include "events/block_hash.h"

#include <string>

#include <openssl/sha.h>

#include "base/check.h"

namespace sluice {
namespace {

// Appends a CBOR head (RFC 8949, section 3): a major type and its argument, in the shortest form.
void AppendCborHead(std::string& out, uint8_t major, uint64_t argument) {
  const auto byte = [&out](uint64_t value) { out.push_back(static_cast<char>(value & 0xff)); };
  const uint8_t type = static_cast<uint8_t>(major << 5);
  if (argument < 24) return byte(type | argument);
  const int log_bytes = argument <= 0xff         ? 0
                        : argument <= 0xffff     ? 1
                        : argument <= 0xffffffff ? 2
                                                 : 3;
  byte(type | static_cast<uint64_t>(24 + log_bytes));
  for (int i = (1 << log_bytes) - 1; i >= 0; --i) byte(argument >> (8 * i));
}

void AppendCborText(std::string& out, std::string_view text) {
  AppendCborHead(out, 3, text.size());
  out += text;
}

void AppendCborKeys(std::string& out, const BlockKeys& keys) {
  const size_t count = (keys.adapter.empty() ? 0 : 1) + (keys.cache_salt.empty() ? 0 : 1);
  if (count == 0) {
    out.push_back('\xf6');  // null
    return;
  }
  AppendCborHead(out, 4, count);
  if (!keys.adapter.empty()) {
    AppendCborHead(out, 4, 3);
    AppendCborText(out, "lora");
    AppendCborText(out, keys.adapter);
    AppendCborText(out, std::to_string(keys.serial));
  }
  if (!keys.cache_salt.empty()) {
    AppendCborHead(out, 4, 2);
    AppendCborText(out, "cache_salt");
    AppendCborText(out, keys.cache_salt);
  }
}

BlockDigest Sha256Of(const std::string& bytes) {
  BlockDigest digest;
  CHECK(SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data()) !=
            nullptr,
        "SHA-256");
  return digest;
}

}  // namespace

BlockDigest RootDigest(std::string_view seed) {
  std::string bytes;
  AppendCborText(bytes, seed);
  return Sha256Of(bytes);
}

BlockDigest DigestOfBlock(const BlockDigest& parent, std::span<const int32_t> tokens,
                          const BlockKeys& keys) {
  std::string bytes;
  AppendCborHead(bytes, 4, 3);
  AppendCborHead(bytes, 2, parent.size());
  bytes.append(reinterpret_cast<const char*>(parent.data()), parent.size());
  AppendCborHead(bytes, 4, tokens.size());
  for (const int32_t token : tokens) AppendCborHead(bytes, 0, static_cast<uint32_t>(token));
  AppendCborKeys(bytes, keys);
  return Sha256Of(bytes);
}

uint64_t ShortHash(const BlockDigest& digest) {
  uint64_t hash = 0;
  for (size_t i = digest.size() - 8; i < digest.size(); ++i) hash = hash << 8 | digest[i];
  return hash;
}

}  // namespace sluice
