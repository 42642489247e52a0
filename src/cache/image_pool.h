// Tracks which images have their embedding rows in memory; handles only ids and counts.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/keyed_hash.h"
#include "base/result.h"

namespace sluice {

// Identifies an image's content: equal ids mean equal content during the pool's lifetime. Positive.
using ImageId = int32_t;
using ImageHash = KeyedHash::Value;

// Hashes the content of images with a random key per process, so that nobody can construct two
// images with the same hash. Thread safety: const.
class ImageHasher {
 public:
  // Hashes an image's values, its shape and the salt.
  ImageHash HashOf(std::span<const float> values, const ImageHash& shape,
                   std::string_view salt) const;

 private:
  KeyedHash hash_;
};

// Room for the embedding rows that a vision tower computes for images. Requests with the same image
// (the same hash) share its id and its rows. Rows stay after their requests until others need the
// room; the least recently used are evicted first. Ids of images without rows are remembered for a
// while, so that prefixes computed with an image are found again.
//
// Images of the step being planned are in use from Use() until EndStep() and are not evicted
// meanwhile. Thread safety: used by the engine's thread only.
class ImagePool {
 public:
  // Maximum number of ids without rows that are remembered.
  static constexpr size_t kMostForgotten = 4096;

  explicit ImagePool(int64_t num_rows);

  // Returns the image's id and adds a reference to it. REQUIRES: equal hashes come with equal
  // `rows`.
  ImageId Hold(const ImageHash& hash, int64_t rows);
  // Removes a reference that Hold added.
  void Release(ImageId image);

  int64_t num_rows() const { return static_cast<int64_t>(rows_total_); }
  // Number of rows that are free or belong to images that the current step does not use.
  int64_t num_unused() const { return num_rows() - used_; }
  // Whether the image's rows are in memory.
  bool HasRows(ImageId image) const { return !EntryOf(image).places.empty(); }
  bool IsUsed(ImageId image) const { return EntryOf(image).is_used; }

  // Marks the image as used by the step. If it has no rows, takes room for them, evicting other
  // images if necessary, and returns true: the caller must compute them. REQUIRES: num_unused()
  // suffices, unless the step uses the image already.
  bool Use(ImageId image);
  // Returns where the image's rows are: row numbers in [0, num_rows).
  std::span<const int32_t> PlacesOf(ImageId image) const { return EntryOf(image).places; }
  // Frees the image's rows, because they were not computed.
  void Drop(ImageId image);
  // Evicts the rows of all images that the step does not use.
  void Reset();
  void EndStep();

  int64_t num_images() const { return std::ssize(with_rows_); }
  Status CheckInvariant() const;

 private:
  struct Entry {
    ImageHash hash = {};
    int64_t rows = 0;
    int64_t holders = 0;
    bool is_used = false;
    std::vector<int32_t> places;          // [rows], or empty
    std::list<ImageId>::iterator recent;  // its entry in `with_rows_` or `forgotten_`
    bool is_forgotten = false;
  };

  Entry& EntryOf(ImageId image);
  const Entry& EntryOf(ImageId image) const;
  void Evict(ImageId image);
  // Remembers an image without references and rows; drops the oldest such image if there are too
  // many.
  void Forget(ImageId image);

  int64_t rows_total_;
  std::vector<int32_t> free_;
  int64_t used_ = 0;  // number of rows of the step's images
  ImageId next_ = 1;
  std::unordered_map<ImageId, Entry> entries_;
  std::map<ImageHash, ImageId> ids_;
  std::list<ImageId> with_rows_;  // least recently used first
  std::list<ImageId> forgotten_;  // ids of images without references and rows, oldest first
  std::vector<ImageId> of_step_;
};

}  // namespace sluice
