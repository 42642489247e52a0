// Matrix types of the operators: views of activations, and weights packed for the kernels.
#pragma once

#include <cstdint>

#include "tensor/bfloat16.h"
#include "tensor/buffer.h"
#include "tensor/data_format.h"

namespace sluice::kernels {

// A view of row-major activations [rows, cols], F32, BF16 or I8. Element (i, j) is at data + (i *
// stride + j). The value of an I8 element is its integer * scales[i].
struct Activations {
  const void* data = nullptr;
  ElementType type = ElementType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;             // elements between rows, >= cols
  const float* scales = nullptr;  // [rows]; I8 only

  const float* f32() const { return static_cast<const float*>(data); }
  const BFloat16* bf16() const { return static_cast<const BFloat16*>(data); }
};

// A weight matrix [out, in], packed for the micro-kernels in its stored format: panels of
// `kPanelRows` output rows, each panel a sequence of lines of consecutive inputs (BF16: [out /
// 16][in / 2][16][2]; F32: [out / 16][in][16]; narrow formats: panel_layout.h). Rows are padded
// with zeros to a whole panel. The panels are the only copy of the weight in memory; the embedding
// reads single rows from them. Ownership: owns its memory; move-only.
//
// If the format has an input order, the inputs are in that order in the panels.
//
// The value of element [n, k] is code (INT4: code - its zero point) * its group's scale *
// row_scales[n]. Scales of groups and blocks are kept as stored. Scales per tensor or row, and
// second scales, are folded into row_scales, so that one matrix can be filled from tensors with
// different scales.
struct PackedMatrix {
  static constexpr int kPanelRows = 16;

  DataFormat format;
  int64_t rows = 0;  // out
  int64_t cols = 0;  // in
  Buffer data;
  Buffer group_scales;  // empty if the format has no groups or blocks
  Buffer row_scales;    // F32 [rows padded to a whole panel]; empty for plain numbers
  Buffer zero_points;   // empty if the format has none
  Buffer input_order;  // I32 [in]: the index of the input at each place of a row; empty: 0, 1, 2...

  // Returns the total size in bytes.
  int64_t bytes() const {
    return static_cast<int64_t>(data.size_bytes() + group_scales.size_bytes() +
                                row_scales.size_bytes() + zero_points.size_bytes() +
                                input_order.size_bytes());
  }

  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix& operator=(PackedMatrix&&) = default;
};

}  // namespace sluice::kernels
