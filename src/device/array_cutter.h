// Divides a piece of device memory into arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/device_pool.h"

namespace sluice {

// If arrays are kept apart, a gap follows each array and no two arrays share memory, so that writes
// beyond an array are detected (DevicePool). The planned size does not change.
class ArrayCutter {
 public:
  explicit ArrayCutter(bool keeps_apart = false) : keeps_apart_(keeps_apart) {}

  // Returns the offset of the next array, aligned to DevicePool::kAlignment.
  int64_t Take(int64_t bytes) {
    const int64_t planned = planned_end_;
    planned_end_ += DevicePool::Padded(bytes);
    most_planned_ = std::max(most_planned_, planned_end_);
    if (!keeps_apart_) return planned;
    const int64_t offset = gaps_.empty() ? 0 : gaps_.back().offset + gaps_.back().bytes;
    const int64_t end = offset + DevicePool::Padded(bytes) + DevicePool::kAlignment;
    gaps_.push_back({offset + bytes, end - offset - bytes});
    return offset;
  }

  // Lets arrays taken after this call share memory with those taken since planned_end() was `end`.
  // REQUIRES: they are never used at the same time.
  void ShareFrom(int64_t end) { planned_end_ = end; }
  int64_t planned_end() const { return planned_end_; }

  // Returns the size of the piece, without gaps.
  int64_t total_bytes() const { return most_planned_; }
  const std::vector<ArrayGap>& gaps() const { return gaps_; }

 private:
  const bool keeps_apart_;
  int64_t planned_end_ = 0, most_planned_ = 0;
  std::vector<ArrayGap> gaps_;
};

}  // namespace sluice
