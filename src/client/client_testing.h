// Test helpers for clients.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "client/url.h"

namespace sluice {

inline sockaddr_in LoopbackAt(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Returns a socket that listens on a free port of 127.0.0.1, and sets `url` to its address.
inline int ListenAt(Url* url, int backlog) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = LoopbackAt(0);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  CHECK(bind(listener, any, size) == 0 && getsockname(listener, any, &size) == 0 &&
            listen(listener, backlog) == 0,
        "no free port");
  url->host = "127.0.0.1";
  url->port = ntohs(address.sin_port);
  return listener;
}

// A port of 127.0.0.1 that never accepts a connection: it is bound, but does not listen.
class DeafPort {
 public:
  DeafPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = LoopbackAt(0);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    CHECK(bind(socket_, any, size) == 0 && getsockname(socket_, any, &size) == 0, "no free port");
    number_ = ntohs(address.sin_port);
  }
  ~DeafPort() { close(socket_); }
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;

  uint16_t number() const { return number_; }

 private:
  int socket_;
  uint16_t number_;
};

}  // namespace sluice
