// A blocking TCP connection that can be cancelled.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "client/url.h"

namespace sluice {

// Ownership: closes its socket when destroyed.
class ClientConnection {
 public:
  // kUnavailable says what could not be reached and why.
  static Result<ClientConnection> Open(const Url& url);

  ClientConnection(ClientConnection&& other) noexcept;
  ClientConnection& operator=(ClientConnection&&) = delete;
  ~ClientConnection();

  Status Write(std::string_view bytes);
  // Appends what has arrived to `buffer`, waiting for at least one byte. False at the end of the
  // stream. kCancelled once `cancel_fd` (-1: none) is readable.
  Result<bool> Read(std::string& buffer, int cancel_fd);

 private:
  explicit ClientConnection(int socket) : socket_(socket) {}
  int socket_;
};

}  // namespace sluice
