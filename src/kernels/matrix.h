// Matrices as the operators see them: views of activations, and weights packed for the kernels.
#pragma once

#include <cstdint>

#include "tensor/bfloat16.h"
#include "tensor/buffer.h"
#include "tensor/data_format.h"

namespace sluice::kernels {

// A view of row-major activations [rows, cols], F32 or BF16. Element (i, j) stands at data + (i *
// stride + j).
struct Activations {
  const void* data = nullptr;
  ElementType type = ElementType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between rows, >= cols

  const float* f32() const { return static_cast<const float*>(data); }
  const BFloat16* bf16() const { return static_cast<const BFloat16*>(data); }
};

// A weight matrix [out, in], packed for the micro-kernels: in panels of `kPanelRows` output rows,
// and inside a panel pairs of inputs side by side (BF16: [out / 16][in / 2][16][2]; F32: [out /
// 16][in][16]). Rows are padded with zeros to a whole panel. The panels are the only copy of the
// weight in memory: the embedding reads single rows out of them. Ownership: owns its bytes;
// move-only.
struct PackedMatrix {
  static constexpr int kPanelRows = 16;

  DataFormat format;
  int64_t rows = 0;  // out
  int64_t cols = 0;  // in
  Buffer data;

  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix& operator=(PackedMatrix&&) = default;
};

}  // namespace sluice::kernels
