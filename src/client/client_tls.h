// TLS for clients: trusted issuers, the client's certificate, and the encryption of one connection.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include <openssl/ssl.h>

#include "base/result.h"

namespace sluice {

struct ClientTlsOptions {
  std::string authorities = {};  // PEM file of trusted certificates; "": the system's
  bool insecure = false;         // whether every server certificate is accepted
  std::string certificate = {};  // PEM file of the client's certificate; "": none
  std::string key = {};          // PEM file of the certificate's key; "": the key is in
                                 // `certificate`
};

// Settings that all connections to one server share. Thread safety: immutable after construction.
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

// The encryption of one connection over a non-blocking socket. Thread safety: one thread.
class TlsLink {
 public:
  // `host`: the name or address that the server's certificate must contain. `fd` remains the
  // caller's and must outlive this object.
  TlsLink(const ClientTls& tls, const std::string& host, int fd);
  // Sends close_notify, but does not wait for the answer.
  ~TlsLink();
  TlsLink(const TlsLink&) = delete;
  TlsLink& operator=(const TlsLink&) = delete;

  enum class Handshake { kDone, kWantsRead, kWantsWrite, kFailed };
  // Call again whenever the socket is readable or writable, until it returns kDone or kFailed.
  Handshake Continue();
  bool ready() const { return ready_; }
  // The reason why the handshake or the connection failed, and advice; "" if TLS was not the cause.
  const std::string& problem() const { return problem_; }

  // Like send() and recv(): return the number of bytes, 0 at the end of the server's data, or -1
  // with errno. EAGAIN: call again when the socket is ready.
  ssize_t Send(const char* data, size_t size);
  ssize_t Receive(char* data, size_t size);
  // Returns whether received bytes are buffered that Receive has not returned yet. The socket
  // reports no event for these bytes.
  bool has_buffered() const { return SSL_has_pending(ssl_) == 1; }

 private:
  ssize_t Outcome(int result);

  SSL* const ssl_;
  const std::string host_;
  bool ready_ = false;
  std::string problem_;
};

}  // namespace sluice
