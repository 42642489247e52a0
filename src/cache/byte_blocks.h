// Memory for the content of blocks that are not in the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// The bytes of one block. Releasing the last reference, on any thread, frees the piece.
using HeldBytes = std::shared_ptr<std::byte>;

// Divides memory into pieces of one size. Thread safety: all methods may be called from any thread.
// Ownership: pieces keep the memory alive.
class ByteBlocks : public std::enable_shared_from_this<ByteBlocks> {
 public:
  // Size of a piece that holds `bytes`, padded to 64.
  static int64_t Padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Divides `memory`, which `owner` keeps alive, into as many pieces of `block_bytes` as fit.
  static std::shared_ptr<ByteBlocks> Divide(std::span<std::byte> memory,
                                            std::shared_ptr<const void> owner, int64_t block_bytes);

  // Returns a piece of undefined content; null if none is free.
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
