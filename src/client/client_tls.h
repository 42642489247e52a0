// TLS on the side of a client: whom it trusts, what it shows, and one connection's encryption.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include <openssl/ssl.h>

#include "base/result.h"

namespace sluice {

struct ClientTlsOptions {
  std::string authorities = {};  // PEM file of trusted certificates; "": those of the system
  bool insecure = false;         // accepts every certificate
  std::string certificate = {};  // PEM file of the client's certificate; "": it shows none
  std::string key = {};          // PEM file of its key; "": it is in `certificate`
};

// What the connections to one server have in common. Thread safety: constant after construction.
class ClientTls {
 public:
  // kInvalidArgument names the option whose file cannot be used.
  static Result<std::shared_ptr<const ClientTls>> Load(const ClientTlsOptions& options);
  ~ClientTls();
  ClientTls(const ClientTls&) = delete;
  ClientTls& operator=(const ClientTls&) = delete;

  SSL_CTX* context() const { return context_; }

 private:
  explicit ClientTls(SSL_CTX* context) : context_(context) {}
  SSL_CTX* const context_;
};

// The encryption of one connection over a socket that does not block. Thread safety: one thread.
class TlsLink {
 public:
  // `host`: the name or address that the server's certificate must have. `fd` stays the caller's
  // and must live longer.
  TlsLink(const ClientTls& tls, const std::string& host, int fd);
  // Tells the server that nothing follows, without waiting for its answer.
  ~TlsLink();
  TlsLink(const TlsLink&) = delete;
  TlsLink& operator=(const TlsLink&) = delete;

  enum class Handshake { kDone, kWantsRead, kWantsWrite, kFailed };
  // To be called again when the socket is readable or writable, until kDone or kFailed.
  Handshake Continue();
  bool ready() const { return ready_; }
  // Why the handshake or the connection failed, and what to do; "" where TLS was not the reason.
  const std::string& problem() const { return problem_; }

  // As send() and recv(): the number of bytes, 0 at the end of what the server sends, -1 with
  // errno, which is EAGAIN where the socket has to be waited for.
  ssize_t Send(const char* data, size_t size);
  ssize_t Receive(char* data, size_t size);
  // Whether bytes were received that Receive has not returned, for which no event comes.
  bool has_buffered() const { return SSL_has_pending(ssl_) == 1; }

 private:
  ssize_t Outcome(int result);

  SSL* const ssl_;
  const std::string host_;
  bool ready_ = false;
  std::string problem_;
};

}  // namespace sluice
