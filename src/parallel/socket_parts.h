// Helpers for TCP between ranks: addresses, and calls with a deadline.
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

// Returns numeric IPv4 addresses at which other machines may reach this one.
std::vector<std::string> OwnAddresses();

struct Listener {
  OwnedFd socket;
  uint16_t port = 0;
};
// Listens at a numeric IPv4 address; "0.0.0.0" means all addresses of this machine. Port 0: a free
// port. Errors: kAddressInUse; kInvalidArgument if this machine does not have the address.
Result<Listener> ListenAt(const std::string& address, uint16_t port);
// Accepts a pending connection. Returns an empty OwnedFd if there is none.
Result<OwnedFd> AcceptNow(const Listener& listener);
// Waits until a descriptor is ready or `until` has passed, which is not an error. kUnavailable,
// with `what` in the message, after `deadline`.
Status PollBy(std::span<pollfd> polled, SocketTime until, SocketTime deadline, const char* what);
// Returns the IPv4 address of a host name; kUnavailable if it has none.
Result<std::string> AddressOfHost(const std::string& host);
// Return the numeric addresses of a connection's two ends.
std::string PeerAddress(const OwnedFd& socket);
std::string LocalAddress(const OwnedFd& socket);
// Returns the network of one of this machine's addresses, such as "10.55.0.0/24"; "" if no
// interface has it.
std::string NetworkOf(const std::string& address);
// Enables TCP keepalive, which detects an unreachable peer within about five seconds.
void KeepAlive(const OwnedFd& socket);
// Connects to an address. kUnavailable with the system's error.
Result<OwnedFd> ConnectBy(const std::string& address, uint16_t port, SocketTime deadline);
// Send or receive all of the bytes, or return kUnavailable. Bytes that need no wait are sent and
// received even after the deadline.
Status SendAllBy(const OwnedFd& socket, std::span<const std::byte> bytes, SocketTime deadline);
Status ReceiveAllBy(const OwnedFd& socket, std::span<std::byte> bytes, SocketTime deadline);
// Receives until the peer closes its sending side. kInvalidData if the peer sends more than `most`
// bytes.
Result<std::string> ReceiveToEndBy(const OwnedFd& socket, size_t most, SocketTime deadline);

}  // namespace sluice
