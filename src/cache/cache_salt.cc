#include "cache/cache_salt.h"

#include <charconv>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::string_view kAdapterMark("\0lora ", 6);

// Consumes a number and the space that follows it.
uint64_t TakeNumber(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  CHECK(error == std::errc() && end < text.data() + text.size());
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

}  // namespace

std::string MakeCacheSalt(const CacheSaltParts& parts) {
  if (!parts.adapter.empty()) {
    return fmt::format("{}{} {} {} {}", kAdapterMark, parts.serial, parts.adapter.size(),
                       parts.adapter, parts.client);
  }
  std::string salt(parts.client.starts_with('\0') ? 1 : 0, '\0');
  return salt += parts.client;
}

CacheSaltParts ReadCacheSalt(std::string_view salt) {
  if (!salt.starts_with('\0')) return {.client = salt, .adapter = {}};
  if (!salt.starts_with(kAdapterMark)) return {.client = salt.substr(1), .adapter = {}};
  salt.remove_prefix(kAdapterMark.size());
  CacheSaltParts parts;
  parts.serial = TakeNumber(salt);
  const size_t length = TakeNumber(salt);
  CHECK_LT(length, salt.size());
  parts.adapter = salt.substr(0, length);
  parts.client = salt.substr(length + 1);
  return parts;
}

}  // namespace sluice
