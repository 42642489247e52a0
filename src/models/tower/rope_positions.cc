#include "models/tower/rope_positions.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

RopePositions::RopePositions(int64_t prompt_tokens, std::span<const PlacedImage> images,
                             int64_t merge) {
  if (images.empty()) return;
  const PlacedImage& last = images.back();
  first_ = images.front().position;
  end_ = last.position + std::ssize(last.image->tokens);
  CHECK_LE(end_, prompt_tokens);
  const int64_t count = end_ - first_;
  axes_.resize(static_cast<size_t>(kAxes * count));
  int64_t next = first_;  // the position of the next text token
  const auto put = [&](int axis, int64_t token, int64_t position) {
    axes_[static_cast<size_t>(axis * count + token - first_)] = static_cast<int32_t>(position);
  };
  const auto put_text = [&](int64_t token) {
    for (int axis = 0; axis < kAxes; ++axis) put(axis, token, next);
    ++next;
  };
  int64_t token = first_;
  for (const PlacedImage& placed : images) {
    const ProcessedImage& image = *placed.image;
    for (; token < placed.position; ++token) put_text(token);
    const int64_t rows = image.grid[1] / merge, cols = image.grid[2] / merge;
    int64_t index = 0, start = next;
    for (const uint8_t is_row : image.is_embedding) {
      if (is_row == 0) {
        put_text(token++);
        continue;
      }
      if (index == 0) start = next;
      put(0, token, start);
      put(1, token, start + index / cols);
      put(2, token, start + index % cols);
      ++token;
      if (++index == rows * cols) next = start + std::max(rows, cols);
    }
  }
  shift_ = next - end_;
}

}  // namespace sluice
