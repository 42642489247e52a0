// A test client with one TCP connection to 127.0.0.1 that sends arbitrary bytes and reads the
// reply.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace sluice {

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    timeval limit{120, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }
  bool connected() const { return connected_; }
  void Send(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  // Reads until `stop` is received, the server closes, or two minutes have passed.
  std::string ReadUntil(const std::string& stop) {
    while (stop.empty() || buffer_.find(stop) == std::string::npos) {
      char chunk[4096];
      const ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) {
        closed_ = n == 0;
        break;
      }
      buffer_.append(chunk, static_cast<size_t>(n));
    }
    const size_t end =
        stop.empty() ? buffer_.size()
                     : std::min(buffer_.find(stop), buffer_.size() - stop.size()) + stop.size();
    std::string result = buffer_.substr(0, end);
    buffer_.erase(0, end);
    return result;
  }
  std::string ReadAll() { return ReadUntil(""); }
  bool closed() const { return closed_; }

 private:
  int fd_;
  bool connected_ = false, closed_ = false;
  std::string buffer_;
};

}  // namespace sluice
