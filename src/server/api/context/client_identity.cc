#include "server/api/context/client_identity.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <random>
#include <string>

#include <xxhash.h>

#include "server/api/context/authorization.h"

namespace sluice {
namespace {

constexpr size_t kSecretBytes = 192;
constexpr size_t kNetworkBytes = 8;

// Returns the part of "127.0.0.1:52976" or "2001:db8::1:52976" that identifies a client.
std::string AddressOf(const std::string& client) {
  std::string address = client.substr(0, client.rfind(':'));
  in6_addr bytes{};
  if (inet_pton(AF_INET6, address.c_str(), &bytes) != 1) return address;
  const auto* data = reinterpret_cast<const char*>(&bytes);
  return std::string(data, IN6_IS_ADDR_V4MAPPED(&bytes) ? sizeof bytes : kNetworkBytes);
}

}  // namespace

ClientIdentity::ClientIdentity(const ApiKeys& keys) : keys_(keys), secret_(kSecretBytes) {
  static_assert(kSecretBytes >= XXH3_SECRET_SIZE_MIN);
  std::random_device random;
  for (unsigned char& byte : secret_) byte = static_cast<unsigned char>(random());
}

uint64_t ClientIdentity::Of(const HttpRequest& head) const {
  const std::string_view key = PresentedKey(head, keys_);
  return key.empty() ? Hash('a', AddressOf(head.client)) : Hash('k', key);
}

uint64_t ClientIdentity::Hash(char kind, std::string_view bytes) const {
  const std::string text = kind + std::string(bytes);
  return XXH3_64bits_withSecret(text.data(), text.size(), secret_.data(), secret_.size());
}

}  // namespace sluice
