// The stored parts of one matrix, as the checkpoint's scheme finds them.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/scheme.h"
#include "models/weights.h"

namespace sluice {

struct MatrixSource {
  std::vector<StoredLinear> parts;  // one below the other; one alone for a fused expert
  // What of the parts the matrix holds, from top to bottom.
  struct Piece {
    size_t part = 0;
    RowRange rows;
  };
  std::vector<Piece> pieces;
  DataFormat packed;     // in memory
  bool decodes = false;  // parts of unlike formats: their values are packed, not codes
  LinearInputs inputs;

  int64_t stored_bytes() const;
};

// Finds the parts and decides how they are combined. An error of one part is that of the matrix.
Result<MatrixSource> FindMatrix(const MatrixParameter& matrix, const Checkpoint& checkpoint,
                                const QuantizationScheme& scheme, ElementType compute_type);

}  // namespace sluice
