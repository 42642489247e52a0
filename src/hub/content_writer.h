// A file's content on its way to the disk, checked as it comes.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"

namespace sluice {

// Writes content in order, and digests it on a thread of its own from the memory that it came
// through, so that a download and its check take one pass and two cores. What was in the file
// before, and what comes until the digest is done with that, it reads from the file; from then on
// it is waited for, since reading again would cost the processors more than the wait.
// Thread safety: one thread calls.
class ContentWriter {
 public:
  // Views `file`, an open descriptor that can be read and written, until it is destroyed; its first
  // `begin` bytes are there already. `etag` promises the content's digest (hub/digest.h).
  ContentWriter(int file, int64_t begin, int64_t size, std::string_view etag);
  ~ContentWriter();
  ContentWriter(const ContentWriter&) = delete;
  ContentWriter& operator=(const ContentWriter&) = delete;

  // Takes what comes next; the file has it after a Flush() at the latest. What the system says
  // where it cannot be written, 0 otherwise. REQUIRES: not more than `size` bytes in all
  int Append(std::string_view bytes);
  int Flush();
  // Bytes that the file has.
  int64_t written() const { return written_; }
  // Bytes that the file has or was to get.
  int64_t appended() const { return appended_; }

  // Waits for the digest. True if the content is that of the ETag; also where the ETag is no
  // digest. kUnavailable if the file cannot be read. REQUIRES: written() == size
  Result<bool> Finish();

 private:
  // What is digested next: in the ring where `data` is set, else in the file.
  struct Part {
    const char* data = nullptr;
    int64_t size = 0;
  };

  Result<bool> Digest();
  // Waits for what follows `done`, which stays in the ring until the next call; nothing once the
  // writer is destroyed.
  Part NextPart(int64_t done);
  void MakeRoom();

  const int file_;
  const int64_t size_;
  const std::string etag_;
  const std::unique_ptr<char[]> ring_;  // a byte of the file is at its position modulo kRingBytes
  int64_t appended_;
  int64_t written_;
  int64_t told_;      // of `written_`, to the digest
  int64_t room_end_;  // up to there the ring may be overwritten

  Mutex mutex_;
  CondVar changed_;
  bool stop_ GUARDED_BY(mutex_) = false;
  int64_t available_ GUARDED_BY(mutex_);     // bytes that the file has, but for the last few
  int64_t ring_begin_ GUARDED_BY(mutex_);    // of what the ring still has
  int64_t digested_ GUARDED_BY(mutex_) = 0;  // after it everything is
  bool follows_ GUARDED_BY(mutex_);          // the ring still has what is digested next
  std::future<Result<bool>> outcome_;
};

}  // namespace sluice
