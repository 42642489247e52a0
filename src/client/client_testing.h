// For tests of clients.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace sluice {

// A port at 127.0.0.1 where nobody answers, however long the test takes: bound, and not listened
// at.
class DeafPort {
 public:
  DeafPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
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
