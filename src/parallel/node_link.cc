#include "parallel/node_link.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice {
namespace {

using Digest = std::array<std::byte, 32>;

Digest Hmac(std::span<const std::byte> key, std::string_view text) {
  Digest digest{};
  unsigned int size = digest.size();
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(digest.data()), &size);
  return digest;
}

bool IsEqual(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view TextOfDigest(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

Result<Digest> RandomDigest() {
  Digest random{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()),
                 static_cast<int>(random.size())) != 1) {
    return Fail(ErrorCode::kInternal, "the system gives no random numbers");
  }
  return random;
}

// Returns the HMAC of both random numbers. Depending on `purpose`, it is the proof of one of the
// ends, or the key for later messages.
Digest Proof(std::string_view secret, std::string_view purpose, const Digest& first,
             const Digest& other) {
  std::string text = "sluice ";
  text += purpose;
  text += TextOfDigest(first);
  text += TextOfDigest(other);
  return Hmac(std::as_bytes(std::span(secret)), text);
}

tl::unexpected<Error> WrongSecret() {
  return Fail(ErrorCode::kInvalidArgument,
              "the other machine has a different secret: give all machines of the group the same "
              "SLUICE_DISTRIBUTED_SECRET",
              "distributed_secret");
}

}  // namespace

Result<Bytes> NodeLink::Challenge() {
  ASSIGN_OR_RETURN(const Digest random, RandomDigest());
  return Bytes(random.begin(), random.end());
}

Result<NodeLink> NodeLink::Accept(Arrival arrival, std::string_view secret, SocketTime deadline) {
  Digest own{}, other{}, shown{};
  static_assert(sizeof(other) + sizeof(shown) == kAnswerBytes);
  CHECK_EQ(arrival.greeting.size(), own.size());
  CHECK_EQ(arrival.received.size(), kAnswerBytes);
  std::copy(arrival.greeting.begin(), arrival.greeting.end(), own.begin());
  std::copy_n(arrival.received.begin(), other.size(), other.begin());
  std::copy_n(arrival.received.begin() + other.size(), shown.size(), shown.begin());
  const bool knows = IsEqual(shown, Proof(secret, "other", own, other));
  // On a wrong secret, send an all-zero proof so that the peer rejects us too.
  RETURN_IF_ERROR(
      SendAllBy(arrival.socket, knows ? Proof(secret, "first", own, other) : Digest{}, deadline));
  if (!knows) return WrongSecret();
  return NodeLink(std::move(arrival.socket), Proof(secret, "key", own, other), /*is_first=*/true);
}

Result<NodeLink> NodeLink::Open(OwnedFd socket, std::string_view secret, SocketTime deadline) {
  ASSIGN_OR_RETURN(const Digest own, RandomDigest());
  Digest first{}, shown{};
  RETURN_IF_ERROR(ReceiveAllBy(socket, first, deadline));
  RETURN_IF_ERROR(SendAllBy(socket, own, deadline));
  RETURN_IF_ERROR(SendAllBy(socket, Proof(secret, "other", first, own), deadline));
  RETURN_IF_ERROR(ReceiveAllBy(socket, shown, deadline));
  if (!IsEqual(shown, Proof(secret, "first", first, own))) return WrongSecret();
  return NodeLink(std::move(socket), Proof(secret, "key", first, own), /*is_first=*/false);
}

NodeLink::Key NodeLink::Sign(std::string_view message, uint64_t number, bool by_first) const {
  std::string text = by_first ? "first" : "other";
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
  text += message;
  return Hmac(key_, text);
}

Status NodeLink::Send(std::string_view message, SocketTime deadline) {
  const auto size = static_cast<uint32_t>(message.size());
  const Key signature = Sign(message, num_sent_++, is_first_);
  RETURN_IF_ERROR(SendAllBy(socket_, std::as_bytes(std::span(&size, 1)), deadline));
  RETURN_IF_ERROR(SendAllBy(socket_, std::as_bytes(std::span(message)), deadline));
  return SendAllBy(socket_, signature, deadline);
}

Result<std::string> NodeLink::Receive(SocketTime deadline) {
  uint32_t size = 0;
  RETURN_IF_ERROR(ReceiveAllBy(socket_, std::as_writable_bytes(std::span(&size, 1)), deadline));
  if (size > kMostBytes) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("a machine's message: expected at most {} bytes, found {}", kMostBytes, size));
  }
  std::string message(size, '\0');
  Key signature{};
  RETURN_IF_ERROR(ReceiveAllBy(socket_, std::as_writable_bytes(std::span(message)), deadline));
  RETURN_IF_ERROR(ReceiveAllBy(socket_, signature, deadline));
  if (!IsEqual(signature, Sign(message, num_received_++, !is_first_)))
    return Fail(ErrorCode::kInvalidData, "a machine's message that it did not sign");
  return message;
}

}  // namespace sluice
