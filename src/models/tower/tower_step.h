// What a tower's program reads of one image, or of one tile or crop of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Patches are in the tower's order: those that are merged follow each other, row by row, and those
// of a window do. Ownership: `values` and `targets` point to memory of the caller's.
struct TowerStep {
  int64_t num_patches = 0;
  const float* values = nullptr;
  // Whether `values` is an image [channels, height, width], or patches [num_patches, numbers] of
  // which `sources` has the order.
  bool is_pixels = false;
  int64_t patch = 0, height = 0, width = 0;     // of an image: in pixels
  std::vector<int32_t> patch_rows, patch_cols;  // [num_patches]
  std::vector<int32_t> sources;                 // [num_patches]
  // [rows, position_entries]: rows of the table of positions, and what each counts for.
  int64_t position_entries = 0;
  std::vector<int32_t> position_rows;
  std::vector<float> position_weights;
  std::vector<float*> targets;  // [merged rows], where each goes; null: nowhere
};

}  // namespace sluice
