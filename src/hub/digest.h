// Checks that a downloaded file has the content that its name in the cache states.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sluice {

// The kind of digest in a hub's ETag. Large files have the SHA-256 of the content. Other files have
// the SHA-1 of git's blob or, on some mirrors, of the content. kNone: the ETag is not a digest.
enum class DigestKind { kNone, kSha1, kSha256 };
DigestKind DigestKindOf(std::string_view etag);

// Compares content, passed in consecutive parts, with the digest in an ETag. Thread safety: one
// thread.
class ContentDigest {
 public:
  // REQUIRES: DigestKindOf(etag) is not kNone.
  ContentDigest(std::string_view etag, int64_t size);
  ~ContentDigest();
  ContentDigest(const ContentDigest&) = delete;
  ContentDigest& operator=(const ContentDigest&) = delete;

  void Add(std::string_view part);
  // Whether the digests are equal. REQUIRES: `size` bytes were passed to Add(); called once.
  bool Matches();

 private:
  class Running;
  const std::string etag_;
  std::unique_ptr<Running> content_;
  std::unique_ptr<Running> blob_;  // used if the ETag may be git's blob hash
};

}  // namespace sluice
