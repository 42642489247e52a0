// Messages between the machines of a group before its ranks exist: the first machine asks the
// others to take part. Both ends prove that they know the group's secret, which is never sent, and
// every message is signed, so that nobody else can start anything on a waiting machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "parallel/arrivals.h"
#include "parallel/socket_parts.h"

namespace sluice {

// Ownership: owns the connection; move-only. Thread safety: one thread sends, one receives.
class NodeLink {
 public:
  static constexpr size_t kMostBytes = 16384;  // maximum size of a message

  // Returns the random bytes that the first machine sends to each new connection (Arrivals), and
  // the size of the reply.
  static Result<Bytes> Challenge();
  static constexpr size_t kAnswerBytes = 64;

  // Open the two ends of a connection. Accept: the first machine's end, after the peer has answered
  // the challenge. Open: the other machine's. kInvalidArgument if the peer has another secret;
  // kUnavailable if it does not answer by the deadline.
  static Result<NodeLink> Accept(Arrival arrival, std::string_view secret, SocketTime deadline);
  static Result<NodeLink> Open(OwnedFd socket, std::string_view secret, SocketTime deadline);

  // Errors: kUnavailable if the peer has gone; kInvalidData if a message is too long or was not
  // signed by the peer.
  Status Send(std::string_view message, SocketTime deadline);
  Result<std::string> Receive(SocketTime deadline);

  const OwnedFd& socket() const { return socket_; }

 private:
  using Key = std::array<std::byte, 32>;

  NodeLink(OwnedFd socket, const Key& key, bool is_first)
      : socket_(std::move(socket)), key_(key), is_first_(is_first) {}
  Key Sign(std::string_view message, uint64_t number, bool by_first) const;

  OwnedFd socket_;
  Key key_;
  bool is_first_;
  uint64_t num_sent_ = 0;
  uint64_t num_received_ = 0;
};

}  // namespace sluice
