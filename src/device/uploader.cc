#include "device/uploader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sluice {

Result<Uploader> Uploader::Create(Device& device, int64_t chunk_bytes) {
  CHECK_GT(chunk_bytes, 0);
  const int64_t size = (chunk_bytes + kAlignment - 1) / kAlignment * kAlignment;
  Uploader uploader;
  for (Chunk& chunk : uploader.chunks_) {
    ASSIGN_OR_RETURN(chunk.memory, device.AllocatePinned(size, "a buffer for uploads"));
    ASSIGN_OR_RETURN(chunk.sent, device.CreateEvent());
  }
  ASSIGN_OR_RETURN(uploader.stream_, device.CreateStream());
  return uploader;
}

Uploader::~Uploader() {
  if (stream_ != nullptr) static_cast<void>(stream_->Synchronize());
}

Status Uploader::NextChunk() {
  stream_->Record(*chunks_[current_].sent);
  const int next = current_ ^ 1;
  RETURN_IF_ERROR(chunks_[next].sent->Synchronize());
  current_ = next;
  used_ = 0;
  return {};
}

Status Uploader::Fill(void* to, int64_t bytes, const FillChunk& fill) {
  if (!begin_) begin_ = Clock::now();
  end_.reset();
  for (int64_t offset = 0; offset < bytes;) {
    const int64_t chunk_bytes = chunks_[current_].memory.size_bytes();
    if (used_ == chunk_bytes) RETURN_IF_ERROR(NextChunk());
    std::byte* const chunk = chunks_[current_].memory.As<std::byte>() + used_;
    const int64_t size = std::min(bytes - offset, chunk_bytes - used_);
    RETURN_IF_ERROR(fill(chunk, offset, size));
    stream_->CopyToDevice(static_cast<std::byte*>(to) + offset, chunk, size);
    offset += size;
    bytes_ += size;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return {};
}

Status Uploader::Copy(ThreadPool& pool, void* to, const void* from, int64_t bytes) {
  constexpr int64_t kGrain = 64 << 10;  // smaller pieces do not justify waking a thread
  return Fill(to, bytes, [&](std::byte* chunk, int64_t offset, int64_t size) -> Status {
    const auto* source = static_cast<const std::byte*>(from) + offset;
    pool.ParallelFor(size, kGrain, [&](int64_t begin, int64_t end) {
      memcpy(chunk + begin, source + begin, static_cast<size_t>(end - begin));
    });
    return {};
  });
}

Status Uploader::Finish() {
  Status status = stream_->Synchronize();
  if (status) used_ = 0;  // all data has arrived, so the current chunk is free
  end_ = Clock::now();
  return status;
}

double Uploader::bytes_per_second() const {
  if (!begin_ || bytes_ == 0) return 0;
  const std::chrono::duration<double> seconds = end_.value_or(Clock::now()) - *begin_;
  return seconds.count() > 0 ? static_cast<double>(bytes_) / seconds.count() : 0;
}

}  // namespace sluice
