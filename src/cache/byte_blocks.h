// Memory for the content of blocks outside the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// The bytes of one block. Releasing the last reference frees the piece; any thread may do so.
using HeldBytes = std::shared_ptr<std::byte>;

// Divides memory into pieces of equal size. Thread safety: all methods may be called from any
// thread. Ownership: pieces keep the memory alive.
class ByteBlocks : public std::enable_shared_from_this<ByteBlocks> {
 public:
  // Rounds the size of a piece up to a multiple of 64 bytes.
  static int64_t Padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Divides `memory`, which `owner` keeps alive, into as many pieces of `block_bytes` as fit.
  static std::shared_ptr<ByteBlocks> Divide(std::span<std::byte> memory,
                                            std::shared_ptr<const void> owner, int64_t block_bytes);

  // Returns a piece with undefined content, or null if none is free.
  HeldBytes Take();
  int64_t num_free() const;

 private:
  ByteBlocks(std::span<std::byte> memory, std::shared_ptr<const void> owner, int64_t block_bytes);

  const std::span<std::byte> memory_;
  const std::shared_ptr<const void> owner_;
  const int64_t stride_;
  mutable Mutex mutex_;
  std::vector<int64_t> free_ GUARDED_BY(mutex_);
};

}  // namespace sluice
