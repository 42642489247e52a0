#include "hub/content_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "hub/digest.h"

namespace sluice {
namespace {

constexpr int64_t kRingBytes = int64_t{4} << 20;
// Size of a write. libcurl delivers 16 KiB at a time. Larger writes are no faster, and make some
// file systems allocate large pages, which a virtual machine may have to get from its host.
constexpr int64_t kWriteBytes = int64_t{64} << 10;
constexpr int64_t kDigestBytes = int64_t{256} << 10;
static_assert(kRingBytes % kWriteBytes == 0 && kRingBytes >= 4 * kDigestBytes);

}  // namespace

ContentWriter::ContentWriter(int file, int64_t begin, int64_t size, std::string_view etag)
    : file_(file),
      size_(size),
      etag_(etag),
      ring_(std::make_unique_for_overwrite<char[]>(kRingBytes)),
      appended_(begin),
      written_(begin),
      told_(begin),
      room_end_(begin),
      available_(begin),
      ring_begin_(begin),
      follows_(begin == 0 && DigestKindOf(etag) != DigestKind::kNone) {
  if (DigestKindOf(etag_) != DigestKind::kNone)
    outcome_ = std::async(std::launch::async, [this] { return Digest(); });
}

ContentWriter::~ContentWriter() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (outcome_.valid()) outcome_.wait();
}

int ContentWriter::Append(std::string_view bytes) {
  CHECK(std::ssize(bytes) <= size_ - appended_, "{} bytes after {} of {}", bytes.size(), appended_,
        size_);
  while (!bytes.empty()) {
    if (appended_ == room_end_) MakeRoom();
    const int64_t place = appended_ % kRingBytes;
    const int64_t count = std::min({std::ssize(bytes), room_end_ - appended_, kRingBytes - place});
    std::memcpy(ring_.get() + place, bytes.data(), static_cast<size_t>(count));
    appended_ += count;
    bytes.remove_prefix(static_cast<size_t>(count));
    if (appended_ % kWriteBytes != 0) continue;
    if (const int error = Flush(); error != 0) return error;
  }
  return 0;
}

void ContentWriter::MakeRoom() {
  room_end_ = (appended_ / kWriteBytes + 1) * kWriteBytes;
  MutexLock lock(mutex_);
  const int64_t begin = room_end_ - kRingBytes;
  while (follows_ && digested_ < begin) changed_.Wait(lock);
  ring_begin_ = std::max(ring_begin_, begin);
}

int ContentWriter::Flush() {
  if (written_ == appended_) return 0;
  while (written_ < appended_) {
    const int64_t place = written_ % kRingBytes;
    const int64_t count = std::min(appended_ - written_, kRingBytes - place);
    const ssize_t done = ::pwrite(file_, ring_.get() + place, static_cast<size_t>(count),
                                  static_cast<off_t>(written_));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : ENOSPC;
    written_ += done;
  }
  // Notifies only after kDigestBytes, because each notification wakes the other thread.
  if (written_ - told_ < kDigestBytes && written_ < size_) return 0;
  told_ = written_;
  {
    const MutexLock lock(mutex_);
    available_ = written_;
  }
  changed_.NotifyAll();
  return 0;
}

Result<bool> ContentWriter::Finish() {
  if (!outcome_.valid()) return true;
  return outcome_.get();
}

ContentWriter::Part ContentWriter::NextPart(int64_t done) {
  MutexLock lock(mutex_);
  digested_ = done;
  follows_ = done >= ring_begin_;
  changed_.NotifyAll();
  while (available_ <= done && !stop_) changed_.Wait(lock);
  if (stop_) return {};
  Part part{.size = std::min(available_ - done, kDigestBytes)};
  if (!follows_) return part;
  const int64_t place = done % kRingBytes;
  part.data = ring_.get() + place;
  part.size = std::min(part.size, kRingBytes - place);
  return part;
}

Result<bool> ContentWriter::Digest() {
  ContentDigest digest(etag_, size_);
  std::vector<char> from_file(static_cast<size_t>(std::min(kDigestBytes, size_)));
  int64_t done = 0;
  while (done < size_) {
    Part part = NextPart(done);
    if (part.size == 0) return false;
    if (part.data == nullptr) {
      const ssize_t got = ::pread(file_, from_file.data(), static_cast<size_t>(part.size),
                                  static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return Fail(ErrorCode::kUnavailable,
                    fmt::format("cannot read what was downloaded: {}",
                                got < 0 ? std::strerror(errno) : "the file was cut"));
      }
      part = {.data = from_file.data(), .size = got};
    }
    digest.Add({part.data, static_cast<size_t>(part.size)});
    done += part.size;
  }
  return digest.Matches();
}

}  // namespace sluice
