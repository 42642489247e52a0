// Memory layout of a PackedMatrix, shared by packing, decoding of rows and the products.
//
// A panel of a narrow format consists of lines of 16 words of 32 bits, one per row. Each word holds
// the codes of 4 (8 bits each) or 8 (4 bits each) consecutive inputs. Rows are padded with zero
// codes to whole steps. The inputs k of a word are in the order that needs the fewest instructions
// to expand to lines of BF16 pairs, or for a dot product of 8-bit integers:
//   INT8  k0 k1 k2 k3                      from the lowest byte on
//   E4M3  k0 k2 k1 k3                      from the lowest byte on
//   E2M1, INT4  k0 k2 k4 k6 k1 k3 k5 k7    from the lowest nibble
// Scales are laid out as [panel][group][16 rows]: bytes for groups of E2M1, F32 for blocks and for
// groups of INT4 and INT8. Zero points of INT4 are bytes [panel][step][16 rows], repeated for all
// steps of a group. If the format has an input order, codes, scales and zero points are all in that
// order.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/matrix.h"

namespace sluice::kernels {

inline constexpr int64_t kPanelRows = PackedMatrix::kPanelRows;

enum class PanelKind {
  kBF16,
  kF32,
  kI8,
  kF8,
  kBlockF8,
  kNvfp4,
  kMxfp4,
  kInt4,
  kGroupInt4,
  kGroupI8
};

// Inputs per step, the unit in which codes are expanded to BF16: one AMX tile of a panel.
constexpr int64_t kPanelStepInputs = 32;

// Sizes of the panels of a supported format.
struct PanelLayout {
  PanelKind kind = PanelKind::kBF16;
  int64_t panel_bytes = 0;
  int64_t inputs_per_word = 0;    // narrow formats only
  int64_t group_size = 0;         // inputs that share a scale; 0: no groups
  int64_t groups = 0;             // number of groups per row, padded to whole steps
  int64_t panel_scale_bytes = 0;  // bytes of a panel's scales of groups and blocks
  int64_t panel_zero_bytes = 0;   // bytes of a panel's zero points

  bool is_narrow() const { return inputs_per_word != 0; }
  // Returns whether scales are F32 and multiply the sums over their inputs.
  bool has_blocks() const {
    return kind == PanelKind::kBlockF8 || kind == PanelKind::kGroupInt4 ||
           kind == PanelKind::kGroupI8;
  }
};

std::optional<PanelKind> PanelKindOf(const DataFormat& format);

// Returns the layout. REQUIRES: a supported format (PanelKindOf has a value).
PanelLayout LayoutOf(const DataFormat& format, int64_t cols);

// Returns the value of a code before scaling; for INT4, with a zero point of 0. `index`: index of
// the input inside its word.
float CodeValue(PanelKind kind, uint32_t word, int64_t index);

// Returns the scale of group or block `group` for row `lane` of the panel.
float GroupScale(PanelKind kind, const std::byte* panel_scales, int64_t group, int64_t lane);

inline int64_t NumPanels(int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}

}  // namespace sluice::kernels
