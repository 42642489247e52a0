// The connections that a listener accepts, until each has sent its first bytes. All wait at the
// same time, each with a deadline of its own: a connection that stays silent delays no other.
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
  Bytes greeting;       // what it was sent when it was accepted
  Bytes received;       // exactly as many as were asked for
};

// Thread safety: one thread. Ownership: `listener` outlives it.
class Arrivals {
 public:
  // Connections that wait at the same time, in all and of one address. One more ends the oldest of
  // its address (of the address that has most): somebody who is fast is not the oldest for long.
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostOfAddress = 8;
  // How long a connection may take for its first bytes.
  static constexpr std::chrono::seconds kPatience{5};

  // `num_bytes`: how many bytes a connection sends first. `greet` gives what each is sent when it
  // is accepted, a few bytes; null: nothing.
  Arrivals(const Listener& listener, size_t num_bytes,
           std::function<Result<Bytes>()> greet = nullptr);

  // The next connection whose first bytes have come. kUnavailable: none by the deadline.
  Result<Arrival> Next(SocketTime deadline);

 private:
  struct Waiting {
    Arrival arrival;
    SocketTime deadline;
  };

  Status Accept();
  void EndOldest();
  // Takes what has come. False: the connection has ended.
  bool Receive(Arrival& arrival) const;

  const Listener& listener_;
  const size_t num_bytes_;
  const std::function<Result<Bytes>()> greet_;
  std::vector<Waiting> waiting_;  // in the order of their arrival
};

}  // namespace sluice
