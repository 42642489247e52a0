#include "server/http/http_stream.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace sluice {
namespace {

namespace asio = boost::asio;

}  // namespace

std::string NameOf(const asio::generic::stream_protocol::endpoint& endpoint) {
  asio::ip::tcp::endpoint address;
  if (endpoint.protocol().family() == AF_UNIX || endpoint.size() > address.capacity())
    return "unix";
  std::memcpy(address.data(), endpoint.data(), endpoint.size());
  return fmt::format("{}:{}", address.address().to_string(), address.port());
}

HttpStream::HttpStream(Socket socket, const TlsContext& tls) : socket_(std::move(socket)) {
  if (tls == nullptr) return;
  tls_.reset(SSL_new(tls.get()));
  if (tls_ == nullptr || SSL_set_fd(tls_.get(), socket_.native_handle()) != 1)
    throw std::bad_alloc();
  SSL_set_accept_state(tls_.get());
}

HttpStream::error_code HttpStream::ErrorOf(int result) {
  const int system_error = errno;
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ: wanted_ = Socket::wait_read; return asio::error::would_block;
    case SSL_ERROR_WANT_WRITE: wanted_ = Socket::wait_write; return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN: return asio::error::eof;
    case SSL_ERROR_SYSCALL:
      return {system_error != 0 ? system_error : ECONNRESET, boost::system::system_category()};
    default: failure_ = ERR_get_error(); return asio::error::connection_aborted;
  }
}

void HttpStream::Handshake(error_code& error) {
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  error = result == 1 ? error_code() : ErrorOf(result);
}

bool HttpStream::BecomePlainForHttp() {
  if (ERR_GET_LIB(failure_) != ERR_LIB_SSL || ERR_GET_REASON(failure_) != SSL_R_HTTP_REQUEST)
    return false;
  tls_.reset();
  return true;
}

std::string HttpStream::reason() const {
  const char* reason = ERR_reason_error_string(failure_);
  return reason != nullptr ? reason : "the connection ended";
}

size_t HttpStream::Read(char* data, size_t size, error_code& error) {
  if (tls_ == nullptr) {
    wanted_ = Socket::wait_read;
    return socket_.read_some(asio::buffer(data, size), error);
  }
  // Reads at most one TLS record and, if `size` is at least 16 KiB, all of it. Data left in
  // OpenSSL's buffer would cause no event of the socket.
  size_t done = 0;
  ERR_clear_error();
  const int result = SSL_read_ex(tls_.get(), data, size, &done);
  error = result == 1 ? error_code() : ErrorOf(result);
  return done;
}

size_t HttpStream::Write(std::string_view bytes, error_code& error) {
  if (tls_ == nullptr) {
    wanted_ = Socket::wait_write;
    return socket_.write_some(asio::buffer(bytes), error);
  }
  size_t done = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &done);
  error = result == 1 ? error_code() : ErrorOf(result);
  return done;
}

void HttpStream::EndWriting(error_code& error) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    if (const int result = SSL_shutdown(tls_.get()); result < 0) {
      error = ErrorOf(result);
      if (error == asio::error::would_block) return;
    }
  }
  socket_.shutdown(Socket::shutdown_send, error);
}

}  // namespace sluice
