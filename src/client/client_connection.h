// A blocking TCP connection that can be cancelled.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "client/url.h"

struct addrinfo;

namespace sluice {

// Every call that waits ends with kCancelled once the connection's `cancel_fd` (-1: none) is
// readable.
// Ownership: closes its socket when destroyed; `cancel_fd` is the caller's.
class ClientConnection {
 public:
  // kUnavailable says what could not be reached and why.
  static Result<ClientConnection> Open(const Url& url, int cancel_fd);

  ClientConnection(ClientConnection&& other) noexcept;
  ClientConnection& operator=(ClientConnection&&) = delete;
  ~ClientConnection();

  // Also succeeds, with the rest unsent, if the server answers before it has taken all: it refuses
  // what it does not want to read. kUnavailable once it takes nothing any more; an answer may be
  // there all the same.
  Status Write(std::string_view bytes);
  // Appends what has arrived to `buffer`, waiting for at least one byte. False at the end of the
  // stream.
  Result<bool> Read(std::string& buffer);

 private:
  ClientConnection(int socket, int cancel_fd) : socket_(socket), cancel_fd_(cancel_fd) {}
  // What has happened of `events`; errors of the socket count as all of them.
  Result<int> Wait(int events) const;
  // 0 or the reason.
  Result<int> Connect(const addrinfo& address) const;

  int socket_;
  int cancel_fd_;
};

}  // namespace sluice
