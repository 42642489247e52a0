// Caches processed images by the bytes of their files, because the images of a conversation are
// sent again with every turn.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string_view>

#include "base/keyed_hash.h"
#include "base/mutex.h"
#include "vision/processor.h"

namespace sluice {

// Keeps the most recently used images, up to a number of bytes. Thread safety: all methods may be
// called from any thread.
class ProcessedImageCache {
 public:
  using Key = KeyedHash::Value;

  explicit ProcessedImageCache(int64_t capacity_bytes) : capacity_(capacity_bytes) {}

  // Returns the key for a file's bytes.
  Key KeyOf(std::string_view bytes) const { return hash_.Of(bytes); }

  // Returns an empty result if the image is not cached.
  ImageParts Find(const Key& key);
  // Stores an image and evicts others if necessary. Does not store an image larger than the cache.
  void Keep(const Key& key, ImageParts parts);
  // Removes all images.
  void Clear();

  int64_t bytes() const;

 private:
  struct Entry {
    Key key;
    ImageParts parts;
    int64_t bytes = 0;
  };

  const int64_t capacity_;
  const KeyedHash hash_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // most recently used first
  std::map<Key, std::list<Entry>::iterator> places_ GUARDED_BY(mutex_);
  int64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
