// Computes positions on three axes (time, row, column) for the tokens of a prompt with images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vision/processed_image.h"

namespace sluice {

// An image whose tokens begin at index `position` of a prompt.
struct PlacedImage {
  int64_t position = 0;
  const ProcessedImage* image = nullptr;
};

// A text token has the same position on all axes: one more than the largest position before it. An
// image token is at the position where the image begins, plus its row and column among the tower's
// output rows, each of which covers merge x merge patches. Source: transformers' get_rope_index of
// Qwen2.5-VL, Qwen3-VL and PaddleOCR-VL.
class RopePositions {
 public:
  static constexpr int kAxes = 3;

  RopePositions() = default;
  // REQUIRES: the images are inside the prompt, ascending, and do not overlap.
  RopePositions(int64_t prompt_tokens, std::span<const PlacedImage> images, int64_t merge);

  // Returns whether every token's position is its index.
  bool is_plain() const { return first_ == 0 && end_ == 0; }
  // Returns the position on `axis` of the token with index `position`, which may be after the
  // prompt.
  int32_t At(int axis, int64_t position) const {
    if (position < first_) return static_cast<int32_t>(position);
    if (position >= end_) return static_cast<int32_t>(position + shift_);
    return axes_[static_cast<size_t>(axis * (end_ - first_) + position - first_)];
  }

 private:
  // Range of tokens from the begin of the first image to the end of the last one.
  int64_t first_ = 0, end_ = 0;
  int64_t shift_ = 0;          // shift of the positions of tokens from end_ on
  std::vector<int32_t> axes_;  // [kAxes, end_ - first_]
};

}  // namespace sluice
