#include "hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/hex.h"

namespace sluice {

DigestKind DigestKindOf(std::string_view etag) {
  const bool hex = std::all_of(etag.begin(), etag.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (hex && etag.size() == 40) return DigestKind::kSha1;
  if (hex && etag.size() == 64) return DigestKind::kSha256;
  return DigestKind::kNone;
}

// A digest that is computed while content arrives.
class ContentDigest::Running {
 public:
  explicit Running(const EVP_MD* kind) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), kind, nullptr);
  }
  void Add(std::string_view part) { EVP_DigestUpdate(context_.get(), part.data(), part.size()); }
  std::string Hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes, &size);
    return HexDigits({bytes, size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

ContentDigest::ContentDigest(std::string_view etag, int64_t size) : etag_(etag) {
  const bool large = DigestKindOf(etag_) == DigestKind::kSha256;
  content_ = std::make_unique<Running>(large ? EVP_sha256() : EVP_sha1());
  if (large) return;
  blob_ = std::make_unique<Running>(EVP_sha1());
  const std::string head = fmt::format("blob {}", size);
  blob_->Add({head.c_str(), head.size() + 1});
}

ContentDigest::~ContentDigest() = default;

void ContentDigest::Add(std::string_view part) {
  content_->Add(part);
  if (blob_) blob_->Add(part);
}

bool ContentDigest::Matches() {
  return content_->Hex() == etag_ || (blob_ && blob_->Hex() == etag_);
}

}  // namespace sluice
