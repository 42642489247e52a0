// Small pieces of TCP between ranks: addresses, and calls that take no longer than
// they are given.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/result.h"

namespace sluice {

using SocketTime = std::chrono::steady_clock::time_point;

// Numeric IPv4 addresses at which other machines may reach this one.
std::vector<std::string> OwnAddresses();

struct Listener {
  OwnedFd socket;
  uint16_t port = 0;
};
// At this numeric IPv4 address, "0.0.0.0" for all of this machine; port 0: a free one. Errors:
// kAddressInUse, and kInvalidArgument for an address that this machine has not.
Result<Listener> ListenAt(const std::string& address, uint16_t port);
// A connection that is there already; none: an empty OwnedFd.
Result<OwnedFd> AcceptNow(const Listener& listener);
// Waits until a descriptor is ready, or the time `until`, which is no error. kUnavailable, with
// `what` in its message, where `deadline` is over.
Status PollBy(std::span<pollfd> polled, SocketTime until, SocketTime deadline, const char* what);
// The IPv4 address of a name; kUnavailable where there is none.
Result<std::string> AddressOfHost(const std::string& host);
// The numeric addresses of the ends of a connection.
std::string PeerAddress(const OwnedFd& socket);
std::string LocalAddress(const OwnedFd& socket);
// The network of an own address, "10.55.0.0/24"; "" where no interface has that address.
std::string NetworkOf(const std::string& address);
// Lets the system notice, within about five seconds, that the other machine cannot be reached.
void KeepAlive(const OwnedFd& socket);
// kUnavailable, with the system's reason.
Result<OwnedFd> ConnectBy(const std::string& address, uint16_t port, SocketTime deadline);
// All of the bytes, or kUnavailable. What fits at once is sent and received after the deadline,
// too.
Status SendAllBy(const OwnedFd& socket, std::span<const std::byte> bytes, SocketTime deadline);
Status ReceiveAllBy(const OwnedFd& socket, std::span<std::byte> bytes, SocketTime deadline);
// What comes until the other end has sent all it sends; kInvalidData for more than `most` bytes.
Result<std::string> ReceiveToEndBy(const OwnedFd& socket, size_t most, SocketTime deadline);

}  // namespace sluice
