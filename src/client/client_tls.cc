#include "client/client_tls.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/check.h"

namespace sluice {
namespace {

// Returns the reason of this thread's most recent OpenSSL error; earlier errors in the queue led to
// it.
std::string LastTlsReason() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : fmt::format("error {:#x}", code);
}

tl::unexpected<Error> BadTlsFile(std::string_view option, const std::string& file,
                                 std::string_view why) {
  ERR_clear_error();
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--{} {}: {}", option, file, why),
              std::string(option));
}

Status CheckTlsFile(std::string_view option, const std::string& file) {
  errno = 0;
  if (std::ifstream(file).good()) return {};
  return BadTlsFile(option, file, std::strerror(errno != 0 ? errno : EIO));
}

// Never asks for a passphrase.
int RefusePassphrase(char*, int, int, void*) {
  return -1;
}

// Used instead of OpenSSL's socket BIO, whose write() raises SIGPIPE.
int SendToSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t sent = send(fd, data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReceiveFromSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t got = recv(fd, data, static_cast<size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long ControlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    CHECK(made != nullptr, "no memory for TLS");
    BIO_meth_set_write(made, SendToSocket);
    BIO_meth_set_read(made, ReceiveFromSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

bool IsAddress(const std::string& host) {
  in6_addr bytes{};
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

}  // namespace

Result<std::shared_ptr<const ClientTls>> ClientTls::Load(const ClientTlsOptions& options) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr)
    return Fail(ErrorCode::kInternal, fmt::format("TLS does not start: {}", LastTlsReason()));
  const std::shared_ptr<const ClientTls> tls(new ClientTls(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Reads from the socket once per record instead of twice.
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_passwd_cb(context, RefusePassphrase);
  if (options.insecure) {
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  } else {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (options.authorities.empty()) {
      SSL_CTX_set_default_verify_paths(context);  // also reads SSL_CERT_FILE and SSL_CERT_DIR
    } else {
      RETURN_IF_ERROR(CheckTlsFile("cacert", options.authorities));
      if (SSL_CTX_load_verify_file(context, options.authorities.c_str()) != 1) {
        return BadTlsFile("cacert", options.authorities,
                          "expected certificates in PEM: " + LastTlsReason());
      }
    }
  }
  if (options.certificate.empty()) {
    if (options.key.empty()) return tls;
    return BadTlsFile("key", options.key, "a key needs its certificate: give --cert, too");
  }
  RETURN_IF_ERROR(CheckTlsFile("cert", options.certificate));
  if (SSL_CTX_use_certificate_chain_file(context, options.certificate.c_str()) != 1) {
    return BadTlsFile("cert", options.certificate,
                      "expected a certificate in PEM: " + LastTlsReason());
  }
  const std::string& key = options.key.empty() ? options.certificate : options.key;
  RETURN_IF_ERROR(CheckTlsFile("key", key));
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return BadTlsFile(
        "key", key,
        "expected the certificate's key in PEM, without a passphrase: " + LastTlsReason());
  }
  return tls;
}

ClientTls::~ClientTls() {
  SSL_CTX_free(context_);
}

TlsLink::TlsLink(const ClientTls& tls, const std::string& host, int fd)
    : ssl_(SSL_new(tls.context())), host_(host) {
  BIO* bio = BIO_new(SocketMethod());
  CHECK(ssl_ != nullptr && bio != nullptr, "no memory for TLS");
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_connect_state(ssl_);
  if (IsAddress(host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), host.c_str());
  } else {
    SSL_set1_host(ssl_, host.c_str());
    SSL_set_tlsext_host_name(ssl_, host.c_str());
  }
}

TlsLink::~TlsLink() {
  ERR_clear_error();
  if (ready_) SSL_shutdown(ssl_);
  SSL_free(ssl_);
  ERR_clear_error();
}

TlsLink::Handshake TlsLink::Continue() {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    ready_ = true;
    return Handshake::kDone;
  }
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ: return Handshake::kWantsRead;
    case SSL_ERROR_WANT_WRITE: return Handshake::kWantsWrite;
    default: break;
  }
  const int reason = errno;
  const bool verifies = SSL_get_verify_mode(ssl_) != SSL_VERIFY_NONE;
  if (const long verified = SSL_get_verify_result(ssl_); verifies && verified != X509_V_OK) {
    problem_ = fmt::format(
        "the certificate of {} is not trusted: {}; name the file of its authority with --cacert, "
        "or accept any certificate with --insecure",
        host_, X509_verify_cert_error_string(verified));
  } else if (const int why = ERR_GET_REASON(ERR_peek_last_error());
             why == SSL_R_WRONG_VERSION_NUMBER || why == SSL_R_HTTP_REQUEST) {
    problem_ = "the server does not use TLS: write http:// instead of https://";
  } else if (ERR_peek_last_error() != 0) {
    problem_ = "TLS: " + LastTlsReason();
  } else {
    problem_ = reason != 0 ? std::strerror(reason) : "the server closed the connection";
  }
  ERR_clear_error();
  return Handshake::kFailed;
}

ssize_t TlsLink::Outcome(int result) {
  const int reason = errno;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: errno = reason != 0 ? reason : ECONNRESET; break;
    default:  // a TLS alert, or the connection ended without one
      problem_ = "TLS: " + LastTlsReason();
      errno = ECONNRESET;
  }
  ERR_clear_error();
  return -1;
}

ssize_t TlsLink::Send(const char* data, size_t size) {
  ERR_clear_error();
  errno = 0;
  size_t sent = 0;
  const int result = SSL_write_ex(ssl_, data, size, &sent);
  return result == 1 ? static_cast<ssize_t>(sent) : Outcome(result);
}

ssize_t TlsLink::Receive(char* data, size_t size) {
  ERR_clear_error();
  errno = 0;
  size_t got = 0;
  const int result = SSL_read_ex(ssl_, data, size, &got);
  return result == 1 ? static_cast<ssize_t>(got) : Outcome(result);
}

}  // namespace sluice
