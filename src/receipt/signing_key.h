// Ed25519 keys (RFC 8032) in PEM files, implemented with OpenSSL.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

// OpenSSL's EVP_PKEY.
typedef struct evp_pkey_st EVP_PKEY;  // NOLINT(modernize-use-using)

namespace sluice {

// A public key and, optionally, its private key. Thread safety: immutable.
class SigningKey {
 public:
  // Reads a private key. kInvalidData, with the file's name but not its content, if the file
  // contains no private key; kInvalidArgument if users other than its owner may read it.
  static Result<SigningKey> LoadPrivate(const std::filesystem::path& path);
  // Reads a public key, or the public half of a private key.
  static Result<SigningKey> LoadPublic(const std::filesystem::path& path);
  // `hex`: the 32 bytes of a public key.
  static Result<SigningKey> FromPublicHex(std::string_view hex);

  // The public key as 64 hexadecimal digits.
  const std::string& public_hex() const { return public_hex_; }
  // Returns a signature of 64 bytes. REQUIRES: the key is private.
  std::string Sign(std::string_view text) const;
  bool Verify(std::string_view text, std::string_view signature) const;

 private:
  explicit SigningKey(EVP_PKEY* key);

  std::shared_ptr<EVP_PKEY> key_;
  std::string public_hex_;
};

// Writes a new private key to `path`, readable only by its owner, and the public key to `path`.pub.
// kInvalidArgument if one of the files exists.
Status MakeKeyPair(const std::filesystem::path& path);

}  // namespace sluice
