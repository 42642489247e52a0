// The operators (op.h) for images: operators of towers, which compute image rows on the CPU, and
// operators with which a decoder reads these rows.
#pragma once

#include <cstdint>

#include "models/program/operands.h"
#include "tensor/element_type.h"

namespace sluice::program {

// --- Decoders -----------------------------------------------------------------------------------

// Replaces the embeddings of image tokens by rows of images (StepInput::image_rows).
struct PlaceImages {
  static constexpr const char* kName = "PlaceImages";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Adds the tower's results from one of its inner layers (TowerSpec::levels) to the rows of images.
struct AddImages {
  static constexpr const char* kName = "AddImages";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  int64_t level = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// --- Towers (TowerSpec) -------------------------------------------------------------------------

// Writes the elements of each patch, in the order of the step (TowerStep), and zeros after the last
// patch.
struct TakePatches {
  static constexpr const char* kName = "TakePatches";
  BufferId out = kNone;  // `type` [rows, width]
  ElementType type = ElementType::kF32;
  int64_t width = 0;
  float shift = 0, scale = 1;  // (x - shift) * scale
  template <typename Use>
  void Operands(Use&& use) const {
    use(out, Access::kWrite);
  }
};

// x[row] += sum of weights[row, i] * table[index[row, i]] (TowerStep). If there is a `last`, it
// first replaces the last row.
struct AddPositions {
  static constexpr const char* kName = "AddPositions";
  BufferId x = kNone;      // F32 [rows, width]
  VectorId table = kNone;  // [positions, width]
  VectorId last = kNone;   // [width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Changes the number of rows to (rows of the step - drops) / group. Buffers do not change: a new
// row consists of `group` consecutive old rows.
struct Regroup {
  static constexpr const char* kName = "Regroup";
  int64_t group = 1;
  int64_t drops = 0;
  template <typename Use>
  void Operands(Use&&) const {}
};

// Merges the pieces of each row of x [rows, group, width]. kMean: computes the mean of the pieces,
// [rows, width]. kByNumber: transposes them, [rows, width, group].
struct MergePatches {
  static constexpr const char* kName = "MergePatches";
  enum class Kind { kMean, kByNumber };
  Kind kind = Kind::kMean;
  BufferId x = kNone, out = kNone;  // F32
  int64_t width = 0;
  int64_t group = 1;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
    use(out, Access::kWrite);
  }
};

// Clamps elements to [bounds[first], bounds[first + 1]].
struct Clamp {
  static constexpr const char* kName = "Clamp";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  VectorId bounds = kNone;
  int64_t first = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Computes x = (x - bias) * factor, elementwise.
struct Standardize {
  static constexpr const char* kName = "Standardize";
  BufferId x = kNone;  // F32 [rows, width]
  VectorId bias = kNone, factor = kNone;
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Copies rows to elements [begin, begin + width) of the step's result rows.
struct StoreImage {
  static constexpr const char* kName = "StoreImage";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0, begin = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kRead);
  }
};

}  // namespace sluice::program
