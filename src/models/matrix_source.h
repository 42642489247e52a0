// Finds the stored parts of a matrix according to the checkpoint's scheme.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/scheme.h"
#include "models/weights.h"

namespace sluice {

struct MatrixSource {
  std::vector<StoredLinear> parts;  // stacked by rows; a single part for a fused expert
  // A piece of a part. The pieces make up the matrix from top to bottom.
  struct Piece {
    size_t part = 0;
    RowRange rows;
  };
  std::vector<Piece> pieces;
  DataFormat packed;  // format in memory
  // Whether the parts have different formats, so that values are packed instead of codes.
  bool decodes = false;
  LinearInputs inputs;

  int64_t stored_bytes() const;
};

// Finds the parts and decides how to combine them. If a part has an error, returns that error.
Result<MatrixSource> FindMatrix(const MatrixParameter& matrix, const Checkpoint& checkpoint,
                                const QuantizationScheme& scheme, ElementType compute_type);

}  // namespace sluice
