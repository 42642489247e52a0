// Accepts a listener's connections and keeps each until it has sent its first bytes. All
// connections wait at the same time, each with a separate deadline, so a silent connection does not
// delay others.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/result.h"
#include "parallel/socket_parts.h"

namespace sluice {

using Bytes = std::vector<std::byte>;

// A connection that has sent its first bytes.
struct Arrival {
  OwnedFd socket;
  std::string address;  // numeric, of the peer
  Bytes greeting;       // sent to the peer on accept
  Bytes received;       // the first `num_bytes` bytes
};

// Thread safety: one thread. Ownership: `listener` outlives it.
class Arrivals {
 public:
  // Maximum number of waiting connections, in total and per address. A further connection closes
  // the oldest one of its address or, at the total limit, of the address with the most connections.
  // A peer that sends promptly is not the oldest for long.
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostOfAddress = 8;
  // Time within which a connection must send its first bytes.
  static constexpr std::chrono::seconds kPatience{5};

  // `num_bytes`: number of first bytes that each connection must send. `greet` returns the few
  // bytes that are sent to each on accept; null: nothing is sent.
  Arrivals(const Listener& listener, size_t num_bytes,
           std::function<Result<Bytes>()> greet = nullptr);

  // Returns the next connection whose first bytes are complete. kUnavailable if there is none by
  // the deadline.
  Result<Arrival> Next(SocketTime deadline);

 private:
  struct Waiting {
    Arrival arrival;
    SocketTime deadline;
  };

  Status Accept();
  void EndOldest();
  // Reads the available bytes. Returns false if the connection has ended.
  bool Receive(Arrival& arrival) const;

  const Listener& listener_;
  const size_t num_bytes_;
  const std::function<Result<Bytes>()> greet_;
  std::vector<Waiting> waiting_;  // in order of arrival
};

}  // namespace sluice
