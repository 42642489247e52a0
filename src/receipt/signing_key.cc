#include "receipt/signing_key.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/owned_fd.h"

namespace sluice {
namespace {

constexpr size_t kPublicBytes = 32, kSignatureBytes = 64;
constexpr uint64_t kMaxKeyFile = 64 << 10;

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Bio = std::unique_ptr<BIO, int (*)(BIO*)>;
using Context = std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)>;

Bio MemoryOf(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// Provides no passphrase, because nobody could enter one at a server.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*user*/) {
  return -1;
}

tl::unexpected<Error> NotAKey(const std::filesystem::path& path, std::string_view kind) {
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{}: expected {} of Ed25519 in PEM, found something else; `sluice "
                          "receipt-key FILE` makes a pair",
                          path.string(), kind));
}

bool IsEd25519(const EVP_PKEY* key) {
  return key != nullptr && EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519;
}

// Writes a file that must not exist yet.
Status WriteNew(const std::filesystem::path& path, mode_t mode, const std::string& text) {
  const OwnedFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) {
    const int error = errno;
    return Fail(
        ErrorCode::kInvalidArgument,
        error == EEXIST
            ? fmt::format("{}: exists; a key is not overwritten, name another file", path.string())
            : fmt::format("{}: cannot be created: {}", path.string(), std::strerror(error)));
  }
  if (write(file.get(), text.data(), text.size()) != std::ssize(text) || fsync(file.get()) != 0)
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
  return {};
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

}  // namespace

SigningKey::SigningKey(EVP_PKEY* key) : key_(key, EVP_PKEY_free) {
  std::array<unsigned char, kPublicBytes> bytes{};
  size_t size = bytes.size();
  CHECK_EQ(EVP_PKEY_get_raw_public_key(key, bytes.data(), &size), 1);
  public_hex_ = HexDigits(bytes);
}

Result<SigningKey> SigningKey::LoadPrivate(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected a private key that only its owner may read, found mode "
                            "{:o}; run chmod 600 on it",
                            path.string(), status.st_mode & 0777));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeyFile));
  const Bio bio = MemoryOf(text);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr), EVP_PKEY_free);
  if (!IsEd25519(key.get())) return NotAKey(path, "a private key without a passphrase");
  return SigningKey(key.release());
}

Result<SigningKey> SigningKey::LoadPublic(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeyFile));
  Bio bio = MemoryOf(text);
  Key key(PEM_read_bio_PUBKEY(bio.get(), nullptr, NoPassphrase, nullptr), EVP_PKEY_free);
  if (key == nullptr) {
    bio = MemoryOf(text);
    key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  }
  if (!IsEd25519(key.get())) return NotAKey(path, "a public key");
  return SigningKey(key.release());
}

Result<SigningKey> SigningKey::FromPublicHex(std::string_view hex) {
  std::array<unsigned char, kPublicBytes> bytes{};
  const auto fail = [] {
    return Fail(ErrorCode::kInvalidData, "expected a public key of 64 hexadecimal digits");
  };
  if (hex.size() != 2 * bytes.size()) return fail();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const char c : hex.substr(2 * i, 2)) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return fail();
      bytes[i] = static_cast<unsigned char>(16 * bytes[i] + digit);
    }
  }
  EVP_PKEY* key =
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes.data(), bytes.size());
  if (key == nullptr) return fail();
  return SigningKey(key);
}

std::string SigningKey::Sign(std::string_view text) const {
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::string signature(kSignatureBytes, '\0');
  size_t size = signature.size();
  CHECK_EQ(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()), 1);
  CHECK_EQ(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                          reinterpret_cast<const unsigned char*>(text.data()), text.size()),
           1);
  signature.resize(size);
  return signature;
}

bool SigningKey::Verify(std::string_view text, std::string_view signature) const {
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  CHECK_EQ(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_.get()), 1);
  return EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                          text.size()) == 1;
}

Status MakeKeyPair(const std::filesystem::path& path) {
  const Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
  CHECK(key != nullptr, "OpenSSL makes no key of Ed25519");
  const Bio secret(BIO_new(BIO_s_secmem()), BIO_free), open(BIO_new(BIO_s_mem()), BIO_free);
  CHECK_EQ(PEM_write_bio_PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr),
           1);
  CHECK_EQ(PEM_write_bio_PUBKEY(open.get(), key.get()), 1);
  std::filesystem::path public_path = path;
  public_path += ".pub";
  std::error_code error;
  if (std::filesystem::exists(public_path, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: exists; a key is not overwritten, name another file",
                            public_path.string()));
  }
  RETURN_IF_ERROR(WriteNew(path, 0600, TextOf(secret.get())));
  return WriteNew(public_path, 0644, TextOf(open.get()));
}

}  // namespace sluice
