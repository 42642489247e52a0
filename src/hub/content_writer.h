// Writes downloaded content to a file and checks its digest at the same time.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"

namespace sluice {

// Writes content from the first byte to the last. Content passes through a ring buffer, from which
// a second thread computes the digest, so downloading and checking take one pass and two cores.
// That thread reads two parts from the file: the initial content, and the content that arrived
// before the thread had caught up. After that, Append waits for the thread, because reading content
// again would take more CPU time than waiting. Thread safety: one thread calls.
class ContentWriter {
 public:
  // Uses `file`, an open descriptor for reading and writing, until destroyed. The file's first
  // `begin` bytes exist already. `etag`: the expected digest (hub/digest.h).
  ContentWriter(int file, int64_t begin, int64_t size, std::string_view etag);
  ~ContentWriter();
  ContentWriter(const ContentWriter&) = delete;
  ContentWriter& operator=(const ContentWriter&) = delete;

  // Appends `bytes`, which are in the file after Flush() at the latest. Returns 0, or errno if
  // writing fails. REQUIRES: not more than `size` bytes in total.
  int Append(std::string_view bytes);
  int Flush();
  // Number of bytes in the file.
  int64_t written() const { return written_; }
  // Number of bytes in the file or waiting in the buffer.
  int64_t appended() const { return appended_; }

  // Waits for the digest. Returns true if the content matches the ETag, or if the ETag is not a
  // digest. kUnavailable if the file cannot be read. REQUIRES: written() == size.
  Result<bool> Finish();

 private:
  // The next bytes to digest: in the ring buffer if `data` is set, else in the file.
  struct Part {
    const char* data = nullptr;
    int64_t size = 0;
  };

  Result<bool> Digest();
  // Waits for bytes after `done`, which stay in the ring buffer until the next call. Returns an
  // empty part once the writer is being destroyed.
  Part NextPart(int64_t done);
  void MakeRoom();

  const int file_;
  const int64_t size_;
  const std::string etag_;
  const std::unique_ptr<char[]> ring_;  // byte `i` of the file is at index i % kRingBytes
  int64_t appended_;
  int64_t written_;
  int64_t told_;      // the value of `written_` at the last notification of the digest's thread
  int64_t room_end_;  // file offset up to which the ring may be overwritten

  Mutex mutex_;
  CondVar changed_;
  bool stop_ GUARDED_BY(mutex_) = false;
  int64_t available_ GUARDED_BY(mutex_);     // number of bytes in the file, as last reported
  int64_t ring_begin_ GUARDED_BY(mutex_);    // file offset of the oldest byte in the ring buffer
  int64_t digested_ GUARDED_BY(mutex_) = 0;  // number of bytes digested so far
  bool follows_ GUARDED_BY(mutex_);          // whether the bytes after digested_ are in the ring
                                             // buffer
  std::future<Result<bool>> outcome_;
};

}  // namespace sluice
