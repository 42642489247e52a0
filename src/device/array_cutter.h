// Cuts a piece of device memory into arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/device_pool.h"

namespace sluice {

// If arrays are kept apart, a gap follows each array, and no two share memory, so that a kernel
// that writes beyond its array is detected (DevicePool). The planned size is the same.
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

  // Arrays taken from here on are never used at the same time as those taken since planned_end()
  // was `end`, and may share their memory.
  void ShareFrom(int64_t end) { planned_end_ = end; }
  int64_t planned_end() const { return planned_end_; }

  // Size of the piece, without gaps.
  int64_t total_bytes() const { return most_planned_; }
  const std::vector<ArrayGap>& gaps() const { return gaps_; }

 private:
  const bool keeps_apart_;
  int64_t planned_end_ = 0, most_planned_ = 0;
  std::vector<ArrayGap> gaps_;
};

}  // namespace sluice
