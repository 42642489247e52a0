// Memory for the content of blocks outside the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// The bytes of one block. Whoever lets go of them last gives them back, on any thread.
using HeldBytes = std::shared_ptr<std::byte>;

// Divides memory into pieces of one size. Thread safety: all methods may be called from any thread.
// Ownership: pieces keep the memory alive.
class ByteBlocks : public std::enable_shared_from_this<ByteBlocks> {
 public:
  // What a piece of `bytes` takes.
  static int64_t Padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  // `memory`, which `owner` keeps alive, makes as many pieces of `block_bytes` as fit.
  static std::shared_ptr<ByteBlocks> Divide(std::span<std::byte> memory,
                                            std::shared_ptr<const void> owner, int64_t block_bytes);

  // Its content is undefined; null where none is free.
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
