#include "hub/digest.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;

// One digest, made piece by piece.
class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), kind, nullptr);
  }
  void Add(const void* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string Hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

DigestKind DigestKindOf(std::string_view etag) {
  const bool hex = std::all_of(etag.begin(), etag.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (hex && etag.size() == 40) return DigestKind::kSha1;
  if (hex && etag.size() == 64) return DigestKind::kSha256;
  return DigestKind::kNone;
}

GrowingFileDigest::GrowingFileDigest(int file, int64_t size, std::string_view etag)
    : file_(file), size_(size), etag_(etag) {
  if (DigestKindOf(etag_) != DigestKind::kNone)
    outcome_ = std::async(std::launch::async, [this] { return Read(); });
}

GrowingFileDigest::~GrowingFileDigest() {
  stop_ = true;
  available_.notify_all();
  SetAvailable(size_);
  if (outcome_.valid()) outcome_.wait();
}

void GrowingFileDigest::SetAvailable(int64_t bytes) {
  available_.store(bytes);
  available_.notify_all();
}

Result<bool> GrowingFileDigest::Finish() {
  if (!outcome_.valid()) return true;
  return outcome_.get();
}

Result<bool> GrowingFileDigest::Read() {
  const bool large = DigestKindOf(etag_) == DigestKind::kSha256;
  Digest content(large ? EVP_sha256() : EVP_sha1());
  Digest blob(EVP_sha1());
  const std::string head = fmt::format("blob {}", size_);
  blob.Add(head.c_str(), head.size() + 1);
  std::vector<char> piece(kReadBytes);
  int64_t done = 0;
  while (done < size_ && !stop_) {
    const int64_t available = available_.load();
    if (available <= done) {
      available_.wait(available);
      continue;
    }
    const ssize_t got =
        ::pread(file_, piece.data(), std::min(piece.size(), static_cast<size_t>(available - done)),
                static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("cannot read what was downloaded: {}",
                              got < 0 ? std::strerror(errno) : "the file was cut"));
    }
    content.Add(piece.data(), static_cast<size_t>(got));
    if (!large) blob.Add(piece.data(), static_cast<size_t>(got));
    done += got;
  }
  return content.Hex() == etag_ || (!large && blob.Hex() == etag_);
}

}  // namespace sluice
