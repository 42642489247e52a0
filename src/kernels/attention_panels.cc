#include "kernels/attention_panels.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/attention_layout.h"
#include "kernels/reference/reference.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

SLUICE_VECTOR_KERNEL(DecodeE4M3);

namespace {

using PairPanel = std::array<BFloat16, size_t{kAttentionPanelPositions} * kMaxHeadDim>;

void Read(Float8E4M3 code, BFloat16& out) {
  out = ToBFloat16(ToFloat(code));
}
void Read(Float8E4M3 code, float& out) {
  out = ToFloat(code);
}
void Read(BFloat16 value, BFloat16& out) {
  out = value;
}
void Read(Float16 value, float& out) {
  out = ToFloat(value);
}
void Read(float value, float& out) {
  out = value;
}

// Rows: what has groups of codes of its own.
void DecodeRows(const Float8E4M3* codes, int rows, int row_codes, BFloat16* panel) {
  std::array<uint8_t, size_t{kAttentionPanelPositions} * kMaxHeadDim> ordered;
  const int in_groups = row_codes / kCodeGroup * kCodeGroup;
  for (int row = 0; row < rows; ++row) {
    const Float8E4M3* from = codes + row * row_codes;
    uint8_t* to = ordered.data() + row * row_codes;
    for (int group = 0; group < in_groups; group += kCodeGroup) {
      // Not std::memcpy: with checks of bounds it is a call for each eight.
#pragma GCC unroll 8
      for (int i = 0; i < kCodeGroup; i += 8)
        __builtin_memcpy(to + group + i, from + group + CodePlace(i), 8);
    }
    if (in_groups < row_codes)
      std::memcpy(to + in_groups, from + in_groups, static_cast<size_t>(row_codes - in_groups));
  }
  kDecodeE4M3(ordered.data(), int64_t{rows} * row_codes, &panel->bits);
}

}  // namespace

void DecodeKeys(const Float8E4M3* codes, int head_dim, BFloat16* panel) {
  DecodeRows(codes, 1, kAttentionPanelPositions * head_dim, panel);
}

void DecodeValues(const Float8E4M3* codes, int head_dim, BFloat16* panel) {
  DecodeRows(codes, kAttentionPanelPositions / 2, 2 * head_dim, panel);
}

void DecodeKeys(const Float16* halves, int head_dim, float* panel) {
  for (int i = 0; i < kAttentionPanelPositions * head_dim; ++i) panel[i] = ToFloat(halves[i]);
}

void DecodeValues(const Float16* halves, int head_dim, float* panel) {
  DecodeKeys(halves, head_dim, panel);
}

void DecodeKeys(const Float8E4M3* codes, int head_dim, float* panel) {
  PairPanel pairs;
  DecodeKeys(codes, head_dim, pairs.data());
  for (int d = 0; d < head_dim; ++d) {
    const BFloat16* from = pairs.data() + KeyOffset(true, head_dim, 0, d);
    for (int position = 0; position < kAttentionPanelPositions; ++position)
      *panel++ = ToFloat(from[2 * position]);
  }
}

void DecodeValues(const Float8E4M3* codes, int head_dim, float* panel) {
  PairPanel pairs;
  DecodeValues(codes, head_dim, pairs.data());
  for (int position = 0; position < kAttentionPanelPositions; ++position) {
    const BFloat16* from = pairs.data() + ValueOffset(true, head_dim, position, 0);
    for (int d = 0; d < head_dim; ++d) *panel++ = ToFloat(from[2 * d]);
  }
}

template <typename T, typename P>
void BringIntoPanels(const KvLayout& layout, const T* k_rows, const T* v_rows, int row_begin,
                     int row_end, int chunk_position, P* k_panels, P* v_panels) {
  constexpr bool kPairs = sizeof(P) == 2;
  const int head_dim = layout.head_dim;
  for (int row = row_begin; row < row_end; ++row, ++chunk_position) {
    const int position = chunk_position % kAttentionPanelPositions;
    const int64_t panel = int64_t{chunk_position - position} * head_dim;
    for (int d = 0; d < head_dim; ++d) {
      Read(k_rows[int64_t{row} * head_dim + d],
           k_panels[panel + KeyOffset(kPairs, head_dim, position, d)]);
      Read(v_rows[int64_t{row} * head_dim + d],
           v_panels[panel + ValueOffset(kPairs, head_dim, position, d)]);
    }
  }
}

template void BringIntoPanels(const KvLayout&, const BFloat16*, const BFloat16*, int, int, int,
                              BFloat16*, BFloat16*);
template void BringIntoPanels(const KvLayout&, const Float8E4M3*, const Float8E4M3*, int, int, int,
                              BFloat16*, BFloat16*);
template void BringIntoPanels(const KvLayout&, const float*, const float*, int, int, int, float*,
                              float*);
template void BringIntoPanels(const KvLayout&, const Float16*, const Float16*, int, int, int,
                              float*, float*);
template void BringIntoPanels(const KvLayout&, const Float8E4M3*, const Float8E4M3*, int, int, int,
                              float*, float*);

}  // namespace sluice::kernels
