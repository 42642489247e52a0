// The operators (op.h) of images: those of towers, which make rows of images, and those by which a
// decoder reads these rows. The CPU.
#pragma once

#include <cstdint>

#include "models/program/operands.h"
#include "tensor/element_type.h"

namespace sluice::program {

// --- Decoders -----------------------------------------------------------------------------------

// Rows of images (StepInput::image_rows) take the place of the embeddings of their tokens.
struct PlaceImages {
  static constexpr const char* kName = "PlaceImages";
  BufferId x = kNone;  // F32 [rows, width]
  int64_t width = 0;
  template <typename Use>
  void Operands(Use&& use) const {
    use(x, Access::kUpdate);
  }
};

// Adds what the tower made at one of its inner layers (TowerSpec::levels) to the rows of images.
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

// The numbers of each patch, in the order of the step (TowerStep), zeros after the last patch.
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

// x[row] += sum of weights[row, i] * table[index[row, i]] (TowerStep); the last row
// is `last` before, if there is such a vector.
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

// From here on there are (rows of the step - drops) / group rows. Buffers stay as they are: a row
// is then what `group` consecutive rows were.
struct Regroup {
  static constexpr const char* kName = "Regroup";
  int64_t group = 1;
  int64_t drops = 0;
  template <typename Use>
  void Operands(Use&&) const {}
};

// Each row of x [rows, group, width] becomes one: the mean of its pieces, [rows, width]; or, for
// each number, that of all pieces, [rows, width, group].
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

// Cuts numbers off below bounds[first] and above bounds[first + 1].
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

// x = (x - bias) * factor, number by number.
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

// Rows to where the step wants them: numbers [begin, begin + width) of each.
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
