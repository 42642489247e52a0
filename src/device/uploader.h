// Uploads weights to a device through two page-locked host buffers. While one buffer is being
// copied to the device, all threads fill the other. So the upload takes as long as the slower of
// the source (a mapped file) and the bus, not the sum of both.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"

namespace sluice {

// Thread safety: one thread at a time. The device outlives the uploader. Pieces may have any size
// and any order; small pieces share a buffer.
class Uploader {
 public:
  // Allocates two pinned buffers of `chunk_bytes`, rounded up to kAlignment.
  static Result<Uploader> Create(Device& device, int64_t chunk_bytes = int64_t{32} << 20);
  // Elements whose size is a power of two up to this are never split between chunks.
  static constexpr int64_t kAlignment = 256;

  Uploader(Uploader&&) = default;
  Uploader& operator=(Uploader&&) = default;
  // Waits for pending work; errors are lost unless Finish was called.
  ~Uploader();

  // Uploads `bytes` bytes. Returns after `from` has been read.
  Status Copy(ThreadPool& pool, void* to, const void* from, int64_t bytes);

  // Generates data: writes bytes [offset, offset + size) of the piece to `chunk`. `chunk` and
  // `offset` are aligned to kAlignment. An error ends the upload of the piece.
  using FillChunk = std::function<Status(std::byte* chunk, int64_t offset, int64_t size)>;
  Status Fill(void* to, int64_t bytes, const FillChunk& fill);

  // Waits until all data has arrived; returns the first error since the last Finish.
  Status Finish();

  int64_t bytes() const { return bytes_; }  // total bytes sent so far
  // Returns the average from the first piece to the last Finish, or until now if not finished. 0 if
  // nothing was sent.
  double bytes_per_second() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Chunk {
    DeviceBuffer memory;
    std::unique_ptr<DeviceEvent> sent;  // recorded after the last copy from `memory`
  };

  Uploader() = default;
  Status NextChunk();

  std::unique_ptr<DeviceStream> stream_;
  std::array<Chunk, 2> chunks_;
  int current_ = 0;
  int64_t used_ = 0;  // bytes of the current chunk that are in use
  int64_t bytes_ = 0;
  std::optional<Clock::time_point> begin_, end_;
};

}  // namespace sluice
