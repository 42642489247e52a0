// Test helpers: certificates that are generated at test time, and a TLS client.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "server/http/raw_client_testing.h"

namespace sluice {

using KeyForTest = std::shared_ptr<EVP_PKEY>;
using X509ForTest = std::shared_ptr<X509>;

struct CertificateForTest {
  KeyForTest key{EVP_EC_gen("P-256"), EVP_PKEY_free};
  X509ForTest certificate{X509_new(), X509_free};

  // Makes a certificate that is signed by `issuer`, or self-signed.
  explicit CertificateForTest(const std::string& name, const CertificateForTest* issuer = nullptr) {
    static long serial = 0;
    X509* x509 = certificate.get();
    X509_set_version(x509, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, key.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const CertificateForTest& signer = issuer != nullptr ? *issuer : *this;
    X509_set_issuer_name(x509, X509_get_subject_name(signer.certificate.get()));
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints,
                                                    issuer != nullptr ? "CA:FALSE" : "CA:TRUE");
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
    X509_sign(x509, signer.key.get(), EVP_sha256());
  }

  void WriteCertificate(const std::filesystem::path& file) const {
    const Output out(file);
    PEM_write_bio_X509(out.bio, certificate.get());
  }
  // Encrypts the key if there is a passphrase.
  void WriteKey(const std::filesystem::path& file, const char* passphrase = nullptr) const {
    const Output out(file);
    PEM_write_bio_PrivateKey(out.bio, key.get(),
                             passphrase == nullptr ? nullptr : EVP_aes_128_cbc(), nullptr, 0,
                             nullptr, const_cast<char*>(passphrase));
  }

 private:
  struct Output {
    explicit Output(const std::filesystem::path& file) : bio(BIO_new_file(file.c_str(), "w")) {}
    ~Output() { BIO_free(bio); }
    BIO* bio;
  };
};

// Does not verify the server's certificate. If the peer closes before everything is written,
// SIGPIPE ends the process unless it is ignored.
class TlsClient {
 public:
  struct Options {
    int newest = TLS1_3_VERSION;
    int oldest = TLS1_2_VERSION;
    std::string protocols = "";  // for ALPN, in wire format
    const CertificateForTest* own = nullptr;
    int receive_buffer = 0;
  };
  explicit TlsClient(uint16_t port) : TlsClient(port, Options()) {}
  TlsClient(uint16_t port, const Options& options)
      : raw_(port, options.receive_buffer), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_security_level(context_, 0);
    SSL_CTX_set_min_proto_version(context_, options.oldest);
    SSL_CTX_set_max_proto_version(context_, options.newest);
    if (options.own != nullptr) {
      SSL_CTX_use_certificate(context_, options.own->certificate.get());
      SSL_CTX_use_PrivateKey(context_, options.own->key.get());
    }
    ssl_ = SSL_new(context_);
    if (!options.protocols.empty()) {
      SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(options.protocols.data()),
                          static_cast<unsigned>(options.protocols.size()));
    }
    SSL_set_fd(ssl_, raw_.fd());
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // With TLS 1.3, true even if the server refuses this client's certificate, because the refusal
  // comes later.
  bool connected() const { return connected_; }
  SSL* ssl() { return ssl_; }
  void Send(const std::string& text) {
    for (size_t sent = 0, size = 0; sent < text.size(); sent += size) {
      if (SSL_write_ex(ssl_, text.data() + sent, text.size() - sent, &size) != 1) return;
    }
  }
  // Announces the end of this client's data. It can still read.
  void HalfClose() { SSL_shutdown(ssl_); }
  std::string ReadUntil(const std::string& stop) {
    std::string text;
    char chunk[4096];
    size_t size = 0;
    while ((stop.empty() || text.find(stop) == std::string::npos) &&
           SSL_read_ex(ssl_, chunk, sizeof chunk, &size) == 1)
      text.append(chunk, size);
    return text;
  }
  std::string ReadAll() { return ReadUntil(""); }
  // Whether the server has announced the end of its data.
  bool ended() const { return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0; }
  std::string ServerName() const {
    const X509* certificate = SSL_get0_peer_certificate(ssl_);
    if (certificate == nullptr) return "";
    char name[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof name);
    return name;
  }

 private:
  RawClient raw_;
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
};

}  // namespace sluice
