// Small pieces of TCP between ranks: addresses, and calls that take no longer than
// they are given.
#pragma once

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
// At a free port, of the loopback alone or of all addresses.
Result<Listener> ListenAnywhere(bool loopback_only);
// At this port of all addresses. kAddressInUse where it is taken.
Result<Listener> ListenAt(uint16_t port);
// The next connection; none by the deadline: kUnavailable.
Result<OwnedFd> AcceptBy(const Listener& listener, SocketTime deadline);
// The IPv4 address of a name; kUnavailable where there is none.
Result<std::string> AddressOfHost(const std::string& host);
// Of a connection: the numeric addresses of its ends.
std::string PeerAddress(const OwnedFd& socket);
std::string LocalAddress(const OwnedFd& socket);
// The network of an own address, "10.55.0.0/24"; "" where no interface has that address.
std::string NetworkOf(const std::string& address);
// Lets the system notice, within about five seconds, that the other machine cannot be reached.
void KeepAlive(const OwnedFd& socket);
// kUnavailable, with the system's reason.
Result<OwnedFd> ConnectBy(const std::string& address, uint16_t port, SocketTime deadline);
// All of the bytes, or kUnavailable.
Status SendAllBy(const OwnedFd& socket, std::span<const std::byte> bytes, SocketTime deadline);
Status ReceiveAllBy(const OwnedFd& socket, std::span<std::byte> bytes, SocketTime deadline);

}  // namespace sluice
