// Messages between the machines of a group, before its ranks exist: how the first machine asks the
// others to take part. Both ends prove that they know the group's secret, which never travels, and
// every message is signed, so that nobody else can start anything on a machine that waits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "parallel/arrivals.h"
#include "parallel/socket_parts.h"

namespace sluice {

// Ownership: of the connection; move-only. Thread safety: one thread sends, one receives.
class NodeLink {
 public:
  static constexpr size_t kMostBytes = 16384;  // of a message

  // What the first machine has Arrivals send to each connection, and what each answers first.
  static Result<Bytes> Challenge();
  static constexpr size_t kAnswerBytes = 64;

  // The first machine's end of a connection that has answered the challenge, and the other one's.
  // kInvalidArgument where the other end has another secret; kUnavailable where it does not answer
  // by the deadline.
  static Result<NodeLink> Accept(Arrival arrival, std::string_view secret, SocketTime deadline);
  static Result<NodeLink> Open(OwnedFd socket, std::string_view secret, SocketTime deadline);

  // Errors: kUnavailable where the other end has gone, kInvalidData for a message that is not its.
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
