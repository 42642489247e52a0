// Inputs of a tower's program for an image, or a tile or crop of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Patches are in the tower's order: the patches of a merged row are consecutive, row by row, and
// the patches of a window are consecutive. Ownership: the caller owns the memory of `values` and
// `targets`.
struct TowerStep {
  int64_t num_patches = 0;
  const float* values = nullptr;
  // Whether `values` is an image [channels, height, width] instead of patches [num_patches,
  // elements]. `sources` contains the index of each patch in `values`.
  bool is_pixels = false;
  int64_t patch = 0, height = 0, width = 0;     // side of a patch, and size of the image, in pixels
  std::vector<int32_t> patch_rows, patch_cols;  // [num_patches]
  std::vector<int32_t> sources;                 // [num_patches]
  // Number of entries per row in the next two arrays, [rows, position_entries]: indices of rows of
  // the position table, and their weights.
  int64_t position_entries = 0;
  std::vector<int32_t> position_rows;
  std::vector<float> position_weights;
  std::vector<float*> targets;  // destination of each merged row; null: the row is dropped
};

}  // namespace sluice
