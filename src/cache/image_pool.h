// Which images have their rows in memory: ids and counts only.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace sluice {

// Names an image's content: equal ids, equal content, as long as the pool lives. Above 0.
using ImageId = int32_t;
using ImageHash = std::array<uint64_t, 2>;

// Hashes the content of images with a key that is random in each process, so that nobody can make
// one image that is taken for another. Thread safety: const.
class ImageHasher {
 public:
  ImageHasher();
  // Hashes the values of an image, and what else tells images apart.
  ImageHash HashOf(std::span<const float> values, const ImageHash& shape,
                   std::string_view salt) const;

 private:
  std::vector<unsigned char> secret_;
};

// Room for rows that a tower made of images. An image is known by its hash: requests that hold the
// same one share its id and its rows, which stay after them until others need their room, the
// longest unused first. Ids of images without rows are remembered for a while, so that a prefix
// that was computed with one is found when it comes again.
//
// Images of the step that is planned are used from Use() until EndStep(), and are not evicted
// meanwhile. Thread safety: used by the engine's thread only.
class ImagePool {
 public:
  // The most ids without rows that are remembered.
  static constexpr size_t kMostForgotten = 4096;

  explicit ImagePool(int64_t num_rows);

  // The image's id, held once more. REQUIRES: `rows` is the same for equal hashes.
  ImageId Hold(const ImageHash& hash, int64_t rows);
  // Undoes Hold.
  void Release(ImageId image);

  int64_t num_rows() const { return static_cast<int64_t>(rows_total_); }
  // Rows that images of the step do not use.
  int64_t num_unused() const { return num_rows() - used_; }
  // Whether the rows are there.
  bool HasRows(ImageId image) const { return !EntryOf(image).places.empty(); }
  bool IsUsed(ImageId image) const { return EntryOf(image).is_used; }

  // The step uses the image; where its rows are not there, room for them is taken, of others if
  // need be, and they are to be made: returns true. REQUIRES: num_unused() is enough, unless the
  // step uses it already.
  bool Use(ImageId image);
  // Where the rows are, in [0, num_rows).
  std::span<const int32_t> PlacesOf(ImageId image) const { return EntryOf(image).places; }
  // The rows were not made.
  void Drop(ImageId image);
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
    std::list<ImageId>::iterator recent;  // in `with_rows_` or `forgotten_`
    bool is_forgotten = false;
  };

  Entry& EntryOf(ImageId image);
  const Entry& EntryOf(ImageId image) const;
  void Evict(ImageId image);
  // One without holders and rows is remembered, as long as there is room.
  void Forget(ImageId image);

  int64_t rows_total_;
  std::vector<int32_t> free_;
  int64_t used_ = 0;  // rows of the step's images
  ImageId next_ = 1;
  std::unordered_map<ImageId, Entry> entries_;
  std::map<ImageHash, ImageId> ids_;
  std::list<ImageId> with_rows_;  // the longest unused first
  std::list<ImageId> forgotten_;  // neither held nor with rows, the oldest first
  std::vector<ImageId> of_step_;
};

}  // namespace sluice
