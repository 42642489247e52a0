// Positions on three axes (time, row, column) of the tokens of a prompt with images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vision/processed_image.h"

namespace sluice {

// An image whose tokens begin at `position` of a prompt.
struct PlacedImage {
  int64_t position = 0;
  const ProcessedImage* image = nullptr;
};

// A token of text is at one position on all axes, one after the largest before it. A row of an
// image is at the position where the image begins, plus its row and column among the rows of the
// tower, which are `merge` patches to a side. Source: transformers' get_rope_index of Qwen2.5-VL,
// Qwen3-VL and PaddleOCR-VL.
class RopePositions {
 public:
  static constexpr int kAxes = 3;

  RopePositions() = default;
  // REQUIRES: the images are inside the prompt, ascending and apart.
  RopePositions(int64_t prompt_tokens, std::span<const PlacedImage> images, int64_t merge);

  // Whether every token is where it stands in the prompt.
  bool is_plain() const { return first_ == 0 && end_ == 0; }
  // The place of the token at `position`, which may be after the prompt.
  int32_t At(int axis, int64_t position) const {
    if (position < first_) return static_cast<int32_t>(position);
    if (position >= end_) return static_cast<int32_t>(position + shift_);
    return axes_[static_cast<size_t>(axis * (end_ - first_) + position - first_)];
  }

 private:
  int64_t first_ = 0, end_ = 0;  // of the first image's tokens, to after those of the last
  int64_t shift_ = 0;            // of what follows
  std::vector<int32_t> axes_;    // [kAxes, end - first]
};

}  // namespace sluice
