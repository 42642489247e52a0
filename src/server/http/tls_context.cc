#include "server/http/tls_context.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509err.h>

#include "base/log.h"

namespace sluice {
namespace {

// Only ciphers with forward secrecy and authenticated encryption.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr std::array<unsigned char, 9> kHttp11 = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
constexpr std::string_view kSessionOwner = "sluice";

// Returns the oldest unread error in this thread's OpenSSL queue, and clears the queue.
std::string ReasonOfTls() {
  const unsigned long code = ERR_get_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason != nullptr ? reason : fmt::format("error {:#x}", code);
}

tl::unexpected<Error> RefusedTls(std::string_view option, const std::string& value,
                                 const std::string& why) {
  ERR_clear_error();
  return Fail(ErrorCode::kInvalidArgument, fmt::format("--{} {}: {}", option, value, why),
              std::string(option));
}

Status CheckReadable(std::string_view option, const std::string& file) {
  struct stat about {};
  errno = 0;
  const bool readable = stat(file.c_str(), &about) == 0 && std::ifstream(file).good();
  if (!readable) return RefusedTls(option, file, std::strerror(errno != 0 ? errno : EIO));
  if (S_ISDIR(about.st_mode)) return RefusedTls(option, file, "expected a file, found a folder");
  return {};
}

// A server cannot ask for a passphrase. `asked` records that a passphrase is needed.
int NoPassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* size,
                   const unsigned char* offered, unsigned offered_size, void*) {
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kHttp11.data(), kHttp11.size(), offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

void SetRules(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // A client may end its connection without a TLS alert, because HTTP determines where its requests
  // end.
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Idle connections hold no buffers, and unsent data may move between two attempts.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_session_id_context(context,
                                 reinterpret_cast<const unsigned char*>(kSessionOwner.data()),
                                 static_cast<unsigned>(kSessionOwner.size()));
  SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
}

Status UseCertificate(SSL_CTX* context, const TlsConfig& config) {
  RETURN_IF_ERROR(CheckReadable("ssl-certfile", config.certificate_file));
  if (SSL_CTX_use_certificate_chain_file(context, config.certificate_file.c_str()) != 1) {
    return RefusedTls("ssl-certfile", config.certificate_file,
                      fmt::format("expected a certificate in PEM form ({})", ReasonOfTls()));
  }
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    LOG_WARNING("http", "--ssl-certfile {}: the certificate has expired", config.certificate_file);
  return {};
}

Status UseKey(SSL_CTX* context, const TlsConfig& config) {
  const bool apart = !config.key_file.empty();
  const std::string_view option = apart ? "ssl-keyfile" : "ssl-certfile";
  const std::string& file = apart ? config.key_file : config.certificate_file;
  RETURN_IF_ERROR(CheckReadable(option, file));
  bool passphrase_asked = false;
  SSL_CTX_set_default_passwd_cb(context, NoPassphrase);
  SSL_CTX_set_default_passwd_cb_userdata(context, &passphrase_asked);
  const bool used = SSL_CTX_use_PrivateKey_file(context, file.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  SSL_CTX_set_default_passwd_cb(context, nullptr);
  if (used && SSL_CTX_check_private_key(context) == 1) return {};
  if (passphrase_asked)
    return RefusedTls(option, file, "the key is encrypted: expected one without a passphrase");
  const int reason = ERR_GET_REASON(ERR_peek_error());
  if (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH) {
    return RefusedTls(option, file,
                      fmt::format("the key does not belong to the certificate of --ssl-certfile {}",
                                  config.certificate_file));
  }
  return RefusedTls(option, file,
                    fmt::format("expected a private key in PEM form ({}){}", ReasonOfTls(),
                                apart ? "" : "; --ssl-keyfile names its file"));
}

Status UseClientRules(SSL_CTX* context, const TlsConfig& config) {
  using ClientCertificates = TlsConfig::ClientCertificates;
  if (!config.client_ca_file.empty()) {
    RETURN_IF_ERROR(CheckReadable("ssl-ca-certs", config.client_ca_file));
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(config.client_ca_file.c_str());
    if (names == nullptr || SSL_CTX_load_verify_file(context, config.client_ca_file.c_str()) != 1) {
      sk_X509_NAME_pop_free(names, X509_NAME_free);
      return RefusedTls("ssl-ca-certs", config.client_ca_file,
                        fmt::format("expected certificates in PEM form ({})", ReasonOfTls()));
    }
    SSL_CTX_set_client_CA_list(context, names);
    if (config.client_certificates == ClientCertificates::kNone)
      LOG_WARNING("http",
                  "--ssl-ca-certs has no effect without --ssl-cert-reqs 1 or 2: client "
                  "certificates are not requested");
  }
  int mode = SSL_VERIFY_NONE;
  if (config.client_certificates != ClientCertificates::kNone) mode = SSL_VERIFY_PEER;
  if (config.client_certificates == ClientCertificates::kRequired)
    mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_CTX_set_verify(context, mode, nullptr);
  return {};
}

}  // namespace

Result<TlsContext> LoadTlsContext(const TlsConfig& config) {
  ERR_clear_error();
  const TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr)
    return Fail(ErrorCode::kInternal, fmt::format("TLS is not available: {}", ReasonOfTls()));
  SetRules(context.get());
  const std::string& ciphers = config.ciphers;
  if (SSL_CTX_set_cipher_list(context.get(), ciphers.empty() ? kCiphers : ciphers.c_str()) != 1) {
    return RefusedTls(
        "ssl-ciphers", ciphers,
        fmt::format("expected a list of ciphers in OpenSSL's form ({})", ReasonOfTls()));
  }
  RETURN_IF_ERROR(UseCertificate(context.get(), config));
  RETURN_IF_ERROR(UseKey(context.get(), config));
  RETURN_IF_ERROR(UseClientRules(context.get(), config));
  return context;
}

Result<std::unique_ptr<TlsCertificates>> TlsCertificates::Load(const TlsConfig& config) {
  std::unique_ptr<TlsCertificates> certificates(new TlsCertificates(config));
  const MutexLock lock(certificates->mutex_);
  certificates->seen_ = certificates->loaded_ = certificates->Stamps();
  ASSIGN_OR_RETURN(certificates->context_, LoadTlsContext(config));
  return certificates;
}

TlsContext TlsCertificates::context() const {
  const MutexLock lock(mutex_);
  return context_;
}

std::vector<TlsCertificates::Stamp> TlsCertificates::Stamps() const {
  std::vector<Stamp> stamps;
  for (const std::string* file :
       {&config_.certificate_file, &config_.key_file, &config_.client_ca_file}) {
    struct stat about {};
    Stamp stamp;
    if (!file->empty() && stat(file->c_str(), &about) == 0) {
      stamp = {about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ino,
               static_cast<uint64_t>(about.st_size)};
    }
    stamps.push_back(stamp);
  }
  return stamps;
}

void TlsCertificates::Reload() {
  const MutexLock lock(mutex_);
  seen_ = Stamps();
  ReloadLocked();
}

void TlsCertificates::RefreshIfChanged() {
  const MutexLock lock(mutex_);
  const std::vector<Stamp> last = std::exchange(seen_, Stamps());
  if (seen_ != loaded_ && seen_ == last) ReloadLocked();
}

void TlsCertificates::ReloadLocked() {
  loaded_ = seen_;
  if (auto context = LoadTlsContext(config_)) {
    context_ = *std::move(context);
    LOG_INFO("http", "new connections use the current certificate of --ssl-certfile {}",
             config_.certificate_file);
  } else {
    LOG_ERROR("http", "reloading the certificate failed; the old one stays in use: {}",
              context.error().message);
  }
}

}  // namespace sluice
