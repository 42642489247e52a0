// Whether a downloaded file is what its name in the cache promises.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sluice {

// Which digest an ETag of the hub is: of large files the SHA-256 of the content, of others the
// SHA-1 of git's blob (or, at some mirrors, of the content); kNone for other ETags.
enum class DigestKind { kNone, kSha1, kSha256 };
DigestKind DigestKindOf(std::string_view etag);

// Compares content, in parts that follow each other, with the digest that an ETag is.
// Thread safety: one thread.
class ContentDigest {
 public:
  // REQUIRES: DigestKindOf(etag) is not kNone
  ContentDigest(std::string_view etag, int64_t size);
  ~ContentDigest();
  ContentDigest(const ContentDigest&) = delete;
  ContentDigest& operator=(const ContentDigest&) = delete;

  void Add(std::string_view part);
  // REQUIRES: Add() had `size` bytes; called once
  bool Matches();

 private:
  class Running;
  const std::string etag_;
  std::unique_ptr<Running> content_;
  std::unique_ptr<Running> blob_;  // where the ETag may be that of git's blob
};

}  // namespace sluice
