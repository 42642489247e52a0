#include "client/client_connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace sluice {

Result<int> ClientConnection::Wait(int events) const {
  while (true) {
    pollfd fds[2] = {{socket_, static_cast<short>(events), 0}, {cancel_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return Fail(ErrorCode::kInternal, fmt::format("poll: {}", std::strerror(errno)));
    }
    if (fds[1].revents != 0) return Fail(ErrorCode::kCancelled, "cancelled");
    if ((fds[0].revents & ~events) != 0) return events;
    if (fds[0].revents != 0) return fds[0].revents;
  }
}

Result<int> ClientConnection::Connect(const addrinfo& address) const {
  if (connect(socket_, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  RETURN_IF_ERROR(Wait(POLLOUT));
  int reason = 0;
  socklen_t reason_size = sizeof(reason);
  getsockopt(socket_, SOL_SOCKET, SO_ERROR, &reason, &reason_size);
  return reason;
}

Result<ClientConnection> ClientConnection::Open(const Url& url, int cancel_fd) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(url.port);
  if (const int error = getaddrinfo(url.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("cannot find host {}: {}", url.host, gai_strerror(error)), "url");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  int reason = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                          address->ai_protocol);
    if (fd < 0) {
      reason = errno;
      continue;
    }
    ClientConnection connection(fd, cancel_fd);
    ASSIGN_OR_RETURN(reason, connection.Connect(*address));
    if (reason == 0) return connection;
  }
  if (reason == EMFILE || reason == ENFILE) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("cannot open a socket: {}; raise `ulimit -n`", std::strerror(reason)));
  }
  return Fail(
      ErrorCode::kUnavailable,
      fmt::format(
          "no server answers at http://{}:{} ({}); start one with `sluice serve MODEL --port {}`",
          url.host, url.port, std::strerror(reason), url.port),
      "url");
}

ClientConnection::ClientConnection(ClientConnection&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), cancel_fd_(other.cancel_fd_) {}

ClientConnection::~ClientConnection() {
  if (socket_ >= 0) close(socket_);
}

Status ClientConnection::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      ASSIGN_OR_RETURN(const int ready, Wait(POLLIN | POLLOUT));
      if ((ready & POLLOUT) == 0) return {};
      continue;
    }
    if (sent < 0) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("the server closed the connection: {}", std::strerror(errno)));
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Result<bool> ClientConnection::Read(std::string& buffer) {
  while (true) {
    RETURN_IF_ERROR(Wait(POLLIN));
    char bytes[16384];
    const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("the server broke off its answer: {}", std::strerror(errno)));
    }
    buffer.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }
}

}  // namespace sluice
