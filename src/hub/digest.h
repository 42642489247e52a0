// Whether a downloaded file is what its name in the cache promises.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"

namespace sluice {

// Which digest an ETag of the hub is: of large files the SHA-256 of the content, of others the
// SHA-1 of git's blob (or, at some mirrors, of the content); kNone for other ETags.
enum class DigestKind { kNone, kSha1, kSha256 };
DigestKind DigestKindOf(std::string_view etag);

// Digests the bytes [0, size) of a file that grows, on a thread of its own, so that a download and
// its check take one pass and two cores.
// Thread safety: one thread calls.
class GrowingFileDigest {
 public:
  // Views `file`, an open descriptor that can be read, until it is destroyed.
  GrowingFileDigest(int file, int64_t size, std::string_view etag);
  ~GrowingFileDigest();

  // The file's first `bytes` bytes are there and will not change.
  void SetAvailable(int64_t bytes);
  // Waits for the end. True if the content is that of the ETag; also where the ETag is no digest.
  // kUnavailable if the file cannot be read. REQUIRES: SetAvailable(size)
  Result<bool> Finish();

 private:
  Result<bool> Read();

  const int file_;
  const int64_t size_;
  const std::string etag_;
  std::atomic<int64_t> available_ = 0;
  std::atomic<bool> stop_ = false;
  std::future<Result<bool>> outcome_;
};

}  // namespace sluice
