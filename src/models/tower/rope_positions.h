// Positions on three axes (time, row, column) of a prompt's tokens, if it has images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vision/processed_image.h"

namespace sluice {

// An image whose tokens begin at token `position` of a prompt.
struct PlacedImage {
  int64_t position = 0;
  const ProcessedImage* image = nullptr;
};

// A text token has the same position on all axes: one after the largest before it. A row of an
// image is at the position where the image begins, plus its row and column among the tower's output
// rows, each of which covers merge x merge patches. Source: transformers' get_rope_index of
// Qwen2.5-VL, Qwen3-VL and PaddleOCR-VL.
class RopePositions {
 public:
  static constexpr int kAxes = 3;

  RopePositions() = default;
  // REQUIRES: the images are inside the prompt, ascending, and do not overlap.
  RopePositions(int64_t prompt_tokens, std::span<const PlacedImage> images, int64_t merge);

  // Whether every token's position is its index.
  bool is_plain() const { return first_ == 0 && end_ == 0; }
  // The position on `axis` of token `position`, which may be after the prompt.
  int32_t At(int axis, int64_t position) const {
    if (position < first_) return static_cast<int32_t>(position);
    if (position >= end_) return static_cast<int32_t>(position + shift_);
    return axes_[static_cast<size_t>(axis * (end_ - first_) + position - first_)];
  }

 private:
  int64_t first_ = 0, end_ = 0;  // tokens from the first image's begin to the last one's end
  int64_t shift_ = 0;            // of the tokens after end_
  std::vector<int32_t> axes_;    // [kAxes, end_ - first_]
};

}  // namespace sluice
