#include "server/processed_image_cache.h"

#include <utility>

namespace sluice {

ImageParts ProcessedImageCache::Find(const Key& key) {
  const MutexLock lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return {};
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->parts;
}

void ProcessedImageCache::Keep(const Key& key, ImageParts parts) {
  int64_t bytes = 256;  // starts with the size of the entry itself
  for (const auto& part : parts) bytes += part->bytes();
  if (bytes > capacity_) return;
  const MutexLock lock(mutex_);
  if (places_.contains(key)) return;
  while (bytes_ + bytes > capacity_) {
    bytes_ -= entries_.back().bytes;
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front({key, std::move(parts), bytes});
  places_[key] = entries_.begin();
  bytes_ += bytes;
}

void ProcessedImageCache::Clear() {
  const MutexLock lock(mutex_);
  places_.clear();
  entries_.clear();
  bytes_ = 0;
}

int64_t ProcessedImageCache::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace sluice
