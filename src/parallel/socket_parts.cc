#include "parallel/socket_parts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

tl::unexpected<Error> SocketError(const char* what, int error) {
  return Fail(ErrorCode::kUnavailable, fmt::format("{}: {}", what, std::strerror(error)));
}

// Waits until the socket is ready. kUnavailable after the deadline.
Status PollOneBy(int fd, short events, SocketTime deadline, const char* what) {
  pollfd polled{fd, events, 0};
  while (polled.revents == 0)
    RETURN_IF_ERROR(PollBy(std::span(&polled, 1), deadline, deadline, what));
  return {};
}

sockaddr_in AddressOf(in_addr_t host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = htons(port);
  return address;
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

std::string TextOfAddress(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

tl::unexpected<Error> ListenError(const std::string& address, uint16_t port, int error) {
  if (error == EADDRINUSE) {
    return Fail(
        ErrorCode::kAddressInUse,
        fmt::format("port {} of {} is already in use: give all machines another --master-port",
                    port, address),
        "master_port");
  }
  if (error == EADDRNOTAVAIL) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no address of this machine, which has {}: --master-addr is that "
                            "of the first machine, at which the others reach it",
                            address, fmt::join(OwnAddresses(), ", ")),
                "master_addr");
  }
  return SocketError("a port for the other ranks", error);
}

}  // namespace

Status PollBy(std::span<pollfd> polled, SocketTime until, SocketTime deadline, const char* what) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= deadline) return SocketError(what, ETIMEDOUT);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
  const int time = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  const int ready = poll(polled.data(), polled.size(), time);
  if (ready < 0 && errno != EINTR) return SocketError(what, errno);
  if (ready <= 0) {
    for (pollfd& one : polled) one.revents = 0;
  }
  return {};
}

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != nullptr)
      found.emplace_back(text);
  }
  freeifaddrs(list);
  return found;
}

Result<Listener> ListenAt(const std::string& address, uint16_t port) {
  in_addr host{};
  if (inet_pton(AF_INET, address.c_str(), &host) != 1) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no IPv4 address", address),
                "master_addr");
  }
  Listener listener;
  listener.socket = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.socket) return SocketError("a socket", errno);
  const int fd = listener.socket.get();
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in own = AddressOf(host.s_addr, port);
  socklen_t length = sizeof(own);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&own), length) != 0 ||
      listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return ListenError(address, port, errno);
  }
  listener.port = ntohs(own.sin_port);
  return listener;
}

Result<std::string> AddressOfHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return Fail(ErrorCode::kUnavailable, fmt::format("{}: {}", host, gai_strerror(error)));
  std::string text = TextOfAddress(*reinterpret_cast<const sockaddr_in*>(found->ai_addr));
  freeaddrinfo(found);
  return text;
}

std::string PeerAddress(const OwnedFd& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return TextOfAddress(address);
}

std::string LocalAddress(const OwnedFd& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return TextOfAddress(address);
}

std::string NetworkOf(const std::string& address) {
  std::string network;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return network;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in own = *reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (TextOfAddress(own) != address || entry->ifa_netmask == nullptr) continue;
    const in_addr_t mask =
        reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr;
    own.sin_addr.s_addr &= mask;
    network = fmt::format("{}/{}", TextOfAddress(own), std::popcount(mask));
  }
  freeifaddrs(list);
  return network;
}

void KeepAlive(const OwnedFd& socket) {
  const std::pair<int, int> options[] = {{TCP_KEEPIDLE, 2}, {TCP_KEEPINTVL, 1}, {TCP_KEEPCNT, 3}};
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  for (const auto& [option, value] : options)
    setsockopt(socket.get(), IPPROTO_TCP, option, &value, sizeof(value));
}

Result<OwnedFd> AcceptNow(const Listener& listener) {
  OwnedFd accepted(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted) {
    SendAtOnce(accepted.get());
    return accepted;
  }
  if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
    return SocketError("waiting for a rank", errno);
  return OwnedFd();
}

Result<OwnedFd> ConnectBy(const std::string& address, uint16_t port, SocketTime deadline) {
  in_addr host{};
  if (inet_pton(AF_INET, address.c_str(), &host) != 1)
    return Fail(ErrorCode::kUnavailable, fmt::format("'{}' is no IPv4 address", address));
  OwnedFd connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connected) return SocketError("a socket", errno);
  const sockaddr_in to = AddressOf(host.s_addr, port);
  if (connect(connected.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    if (errno != EINPROGRESS) return SocketError(address.c_str(), errno);
    RETURN_IF_ERROR(PollOneBy(connected.get(), POLLOUT, deadline, address.c_str()));
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(connected.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return SocketError(address.c_str(), error);
  }
  SendAtOnce(connected.get());
  return connected;
}

Status SendAllBy(const OwnedFd& socket, std::span<const std::byte> bytes, SocketTime deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      RETURN_IF_ERROR(PollOneBy(socket.get(), POLLOUT, deadline, "sending to a rank"));
    } else {
      return SocketError("sending to a rank", errno);
    }
  }
  return {};
}

Status ReceiveAllBy(const OwnedFd& socket, std::span<std::byte> bytes, SocketTime deadline) {
  while (!bytes.empty()) {
    const ssize_t received = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<size_t>(received));
    } else if (received == 0) {
      return SocketError("receiving from a rank", ECONNRESET);
    } else if (errno == EAGAIN || errno == EINTR) {
      RETURN_IF_ERROR(PollOneBy(socket.get(), POLLIN, deadline, "receiving from a rank"));
    } else {
      return SocketError("receiving from a rank", errno);
    }
  }
  return {};
}

Result<std::string> ReceiveToEndBy(const OwnedFd& socket, size_t most, SocketTime deadline) {
  std::string text;
  std::array<char, 4096> bytes{};
  while (text.size() <= most) {
    const ssize_t received = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (received == 0) return text;
    if (received > 0) {
      text.append(bytes.data(), static_cast<size_t>(received));
    } else if (errno == EAGAIN || errno == EINTR) {
      RETURN_IF_ERROR(PollOneBy(socket.get(), POLLIN, deadline, "receiving from an agent"));
    } else {
      return SocketError("receiving from an agent", errno);
    }
  }
  return Fail(ErrorCode::kInvalidData, fmt::format("expected at most {} bytes", most));
}

}  // namespace sluice
