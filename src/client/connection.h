// A blocking TCP connection that can be cancelled.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "client/url.h"

namespace sluice {

// Ownership: closes its socket when destroyed.
class Connection {
 public:
  // kUnavailable says what could not be reached and why.
  static Result<Connection> Open(const Url& url);

  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&&) = delete;
  ~Connection();

  Status Write(std::string_view bytes);
  // Appends what has arrived to `buffer`, waiting for at least one byte. False at the end of the stream.
  // kCancelled once `cancel_fd` (-1: none) is readable.
  Result<bool> Read(std::string& buffer, int cancel_fd);

 private:
  explicit Connection(int socket) : socket_(socket) {}
  int socket_;
};

}  // namespace sluice
