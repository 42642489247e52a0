// The bytes of one connection, plain or with TLS. Internal to this folder, because it includes Asio
// and OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/ssl.h>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>

#include "server/http/tls_context.h"

namespace sluice {

// Returns "127.0.0.1:52976", or "unix" for a unix socket.
std::string NameOf(const boost::asio::generic::stream_protocol::endpoint& endpoint);

// Calls do as much as possible without blocking. After the error would_block, repeat the call (a
// Write with the same bytes) once the socket is ready for wanted(). Thread safety: one thread at a
// time.
class HttpStream {
 public:
  // Names the concrete executor, because asio::any_io_executor takes more memory in each
  // connection.
  using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol,
                                                  boost::asio::io_context::executor_type>;
  using error_code = boost::system::error_code;

  // Approximate memory of a TLS connection, including its buffers.
  static constexpr size_t kTlsBytes = size_t{48} << 10;

  // `tls` is null for a plain connection. Throws std::bad_alloc.
  HttpStream(Socket socket, const TlsContext& tls);

  Socket& socket() { return socket_; }
  bool tls() const { return tls_ != nullptr; }
  // The event to wait for before repeating a call that would have blocked.
  Socket::wait_type wanted() const { return wanted_; }

  // Call until it succeeds, before anything is read or written. REQUIRES: tls().
  void Handshake(error_code& error);
  // Call after a failed handshake. Returns whether the client uses plain HTTP. If so, the stream
  // becomes plain, so that the client gets an answer.
  bool BecomePlainForHttp();
  // Returns the reason why the last call failed, for the log.
  std::string reason() const;

  // Reads at least one byte, or sets an error: eof if the client sends no more data.
  size_t Read(char* data, size_t size, error_code& error);
  size_t Write(std::string_view bytes, error_code& error);
  // Tells the client that no more data follows.
  void EndWriting(error_code& error);

 private:
  struct FreeTls {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };

  // Converts the error of an OpenSSL call that returned `result`.
  error_code ErrorOf(int result);

  Socket socket_;
  std::unique_ptr<SSL, FreeTls> tls_;
  Socket::wait_type wanted_ = Socket::wait_read;
  unsigned long failure_ = 0;  // OpenSSL's error code
};

}  // namespace sluice
