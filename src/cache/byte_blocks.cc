#include "cache/byte_blocks.h"

#include <utility>

namespace sluice {

std::shared_ptr<ByteBlocks> ByteBlocks::Divide(std::span<std::byte> memory,
                                               std::shared_ptr<const void> owner,
                                               int64_t block_bytes) {
  return std::shared_ptr<ByteBlocks>(new ByteBlocks(memory, std::move(owner), block_bytes));
}

ByteBlocks::ByteBlocks(std::span<std::byte> memory, std::shared_ptr<const void> owner,
                       int64_t block_bytes)
    : memory_(memory), owner_(std::move(owner)), stride_(Padded(block_bytes)) {
  const int64_t count = static_cast<int64_t>(memory_.size()) / stride_;
  free_.reserve(static_cast<size_t>(count));
  // Pieces are taken from the back of the list, so this order uses low addresses first. Few pages
  // are touched as long as few pieces are used.
  for (int64_t i = count - 1; i >= 0; --i) free_.push_back(i);
}

HeldBytes ByteBlocks::Take() {
  int64_t index = 0;
  {
    const MutexLock lock(mutex_);
    if (free_.empty()) return nullptr;
    index = free_.back();
    free_.pop_back();
  }
  return {memory_.data() + index * stride_, [self = shared_from_this(), index](std::byte*) {
            const MutexLock lock(self->mutex_);
            self->free_.push_back(index);
          }};
}

int64_t ByteBlocks::num_free() const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(free_.size());
}

}  // namespace sluice
