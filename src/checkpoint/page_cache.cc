#include "checkpoint/page_cache.h"

#include <utility>

#include <fcntl.h>

namespace sluice {

PageCacheDropper::PageCacheDropper(const Checkpoint& checkpoint) {
  for (const SafetensorsFile& file : checkpoint.files()) {
    OwnedFd opened(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (opened) files_.emplace(&file, std::move(opened));
  }
}

void PageCacheDropper::Drop(const StoredTensor& tensor, uint64_t offset, uint64_t size) const {
  const auto found = files_.find(tensor.file);
  if (found == files_.end() || size == 0) return;
  ::posix_fadvise(found->second.get(), static_cast<off_t>(tensor.info->offset + offset),
                  static_cast<off_t>(size), POSIX_FADV_DONTNEED);
}

}  // namespace sluice
