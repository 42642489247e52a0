#include "cache/image_pool.h"

#include <utility>

#include "base/check.h"

namespace sluice {

ImageHash ImageHasher::HashOf(std::span<const float> values, const ImageHash& shape,
                              std::string_view salt) const {
  const ImageHash all[3] = {hash_.Of(values.data(), values.size_bytes()), shape, hash_.Of(salt)};
  return hash_.Of(all, sizeof(all));
}

ImagePool::ImagePool(int64_t num_rows) : rows_total_(num_rows) {
  free_.reserve(static_cast<size_t>(num_rows));
  for (int64_t i = num_rows; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
}

ImagePool::Entry& ImagePool::EntryOf(ImageId image) {
  const auto found = entries_.find(image);
  CHECK(found != entries_.end(), "image {} is not known", image);
  return found->second;
}
const ImagePool::Entry& ImagePool::EntryOf(ImageId image) const {
  const auto found = entries_.find(image);
  CHECK(found != entries_.end(), "image {} is not known", image);
  return found->second;
}

ImageId ImagePool::Hold(const ImageHash& hash, int64_t rows) {
  CHECK(rows > 0 && rows <= rows_total_, "an image of {} rows, with room for {}", rows,
        rows_total_);
  if (const auto known = ids_.find(hash); known != ids_.end()) {
    Entry& entry = EntryOf(known->second);
    CHECK_EQ(entry.rows, rows);
    if (entry.is_forgotten) {
      forgotten_.erase(entry.recent);
      entry.is_forgotten = false;
    }
    ++entry.holders;
    return known->second;
  }
  const ImageId image = next_++;
  ids_.emplace(hash, image);
  Entry& entry = entries_[image];
  entry.hash = hash;
  entry.rows = rows;
  entry.holders = 1;
  return image;
}

void ImagePool::Release(ImageId image) {
  Entry& entry = EntryOf(image);
  CHECK_GT(entry.holders, 0);
  --entry.holders;
  if (entry.holders == 0 && entry.places.empty()) Forget(image);
}

void ImagePool::Forget(ImageId image) {
  Entry& entry = EntryOf(image);
  entry.is_forgotten = true;
  entry.recent = forgotten_.insert(forgotten_.end(), image);
  if (forgotten_.size() <= kMostForgotten) return;
  const ImageId oldest = forgotten_.front();
  forgotten_.pop_front();
  ids_.erase(EntryOf(oldest).hash);
  entries_.erase(oldest);
}

void ImagePool::Evict(ImageId image) {
  Entry& entry = EntryOf(image);
  free_.insert(free_.end(), entry.places.begin(), entry.places.end());
  entry.places.clear();
  with_rows_.erase(entry.recent);
  if (entry.holders == 0) Forget(image);
}

bool ImagePool::Use(ImageId image) {
  Entry& entry = EntryOf(image);
  if (entry.is_used) return false;
  CHECK_LE(entry.rows, num_unused());
  entry.is_used = true;
  used_ += entry.rows;
  of_step_.push_back(image);
  if (!entry.places.empty()) {
    with_rows_.splice(with_rows_.end(), with_rows_, entry.recent);
    return false;
  }
  for (auto next = with_rows_.begin(); std::ssize(free_) < entry.rows;) {
    CHECK(next != with_rows_.end(), "no room for {} rows", entry.rows);
    const ImageId other = *next++;
    if (!EntryOf(other).is_used) Evict(other);
  }
  const auto first = free_.end() - static_cast<ptrdiff_t>(entry.rows);
  entry.places.assign(first, free_.end());
  free_.erase(first, free_.end());
  entry.recent = with_rows_.insert(with_rows_.end(), image);
  return true;
}

void ImagePool::Drop(ImageId image) {
  Entry& entry = EntryOf(image);
  if (entry.places.empty()) return;
  if (std::exchange(entry.is_used, false)) {
    used_ -= entry.rows;
    std::erase(of_step_, image);
  }
  Evict(image);
}

void ImagePool::Reset() {
  for (auto next = with_rows_.begin(); next != with_rows_.end();) {
    const ImageId image = *next++;
    if (!EntryOf(image).is_used) Evict(image);
  }
}

void ImagePool::EndStep() {
  for (const ImageId image : of_step_) EntryOf(image).is_used = false;
  of_step_.clear();
  used_ = 0;
}

Status ImagePool::CheckInvariant() const {
  int64_t held = 0, used = 0, lists = 0;
  for (const auto& [image, entry] : entries_) {
    held += std::ssize(entry.places);
    used += entry.is_used ? entry.rows : 0;
    lists += entry.is_forgotten;
    if (entry.is_forgotten && (entry.holders > 0 || !entry.places.empty()))
      return Fail(ErrorCode::kInternal, "an image that is in use was removed");
  }
  if (held + std::ssize(free_) != rows_total_ || used != used_ || lists != std::ssize(forgotten_) ||
      ids_.size() != entries_.size()) {
    return Fail(ErrorCode::kInternal, "the counts of images' rows contradict each other");
  }
  return {};
}

}  // namespace sluice
