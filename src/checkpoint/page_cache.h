// Drops a checkpoint's pages from the page cache while the checkpoint is loaded. Needed for devices
// that share the host's memory, where cached pages would take memory from the weights.
#pragma once

#include <cstdint>
#include <map>

#include "base/owned_fd.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Ownership: the checkpoint must outlive it. Thread safety: constant after construction.
class PageCacheDropper {
 public:
  // Opens all files of the checkpoint again. The pages of a file that cannot be opened stay in the
  // cache.
  explicit PageCacheDropper(const Checkpoint& checkpoint);

  // Drops the whole pages of bytes [offset, offset + size) of the tensor, except pages that a
  // process has mapped. So call StoredTensor::Release first.
  void Drop(const StoredTensor& tensor, uint64_t offset, uint64_t size) const;

 private:
  std::map<const SafetensorsFile*, OwnedFd> files_;
};

}  // namespace sluice
