#include "kernels/attention_panels.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/attention_layout.h"
#include "kernels/reference/reference.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

SLUICE_VECTOR_KERNEL(DecodeE4M3);

namespace {

using PairPanel = std::array<BFloat16, size_t{kAttentionPanelPositions} * kMaxKeyDim>;

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

// Decodes `rows` rows of `row_codes` codes; every row has its own groups (CodePlace).
void DecodeRows(const Float8E4M3* codes, int rows, int row_codes, BFloat16* panel) {
  std::array<uint8_t, size_t{kAttentionPanelPositions} * kMaxKeyDim> ordered;
  const int in_groups = row_codes / kCodeGroup * kCodeGroup;
  for (int row = 0; row < rows; ++row) {
    const Float8E4M3* from = codes + row * row_codes;
    uint8_t* to = ordered.data() + row * row_codes;
    for (int group = 0; group < in_groups; group += kCodeGroup) {
      // std::memcpy is avoided: with bounds checks it becomes a call for every eight bytes.
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

namespace {

// Converts elements of a row to the panels' type.
void ReadRow(const Float8E4M3* from, int count, BFloat16* to) {
  constexpr int kCodesAtOnce = 64;
  const int whole = count / kCodesAtOnce * kCodesAtOnce;
  kDecodeE4M3(reinterpret_cast<const uint8_t*>(from), whole, &to->bits);
  for (int i = whole; i < count; ++i) Read(from[i], to[i]);
}
template <typename T, typename P>
void ReadRow(const T* from, int count, P* to) {
  for (int i = 0; i < count; ++i) Read(from[i], to[i]);
}

void PanelsOfRows(const float* const* rows, int keys, int values, float* k_panel, float* v_panel) {
  for (int d = 0; d < keys; ++d) {
    for (int position = 0; position < kAttentionPanelPositions; ++position)
      k_panel[d * kAttentionPanelPositions + position] = rows[position][d];
  }
  for (int position = 0; position < kAttentionPanelPositions; ++position)
    std::memcpy(v_panel + int64_t{position} * values, rows[position],
                static_cast<size_t>(values) * sizeof(float));
}

// Copies rows to a panel of keys and a panel of values. Key panels interleave pairs of elements of
// one position; value panels interleave pairs of positions.
void PanelsOfRows(const BFloat16* const* rows, int keys, int values, BFloat16* k_panel,
                  BFloat16* v_panel) {
  for (int d = 0; d < keys; d += 2) {
    for (int position = 0; position < kAttentionPanelPositions; ++position)
      __builtin_memcpy(k_panel + (d / 2 * kAttentionPanelPositions + position) * 2,
                       rows[position] + d, 2 * sizeof(BFloat16));
  }
  for (int position = 0; position < kAttentionPanelPositions; position += 2) {
    const BFloat16* const first = rows[position];
    const BFloat16* const second = rows[position + 1];
    BFloat16* const pairs = v_panel + int64_t{position} * values;
    for (int d = 0; d < values; ++d) {
      pairs[2 * d] = first[d];
      pairs[2 * d + 1] = second[d];
    }
  }
}

}  // namespace

template <typename T, typename P>
void MakeLatentPanels(const KvLayout& layout, const T* const (&rows)[kAttentionPanelPositions],
                      P* k_panel, P* v_panel) {
  if constexpr (std::is_same_v<T, P>) {
    PanelsOfRows(rows, layout.head_dim, layout.latent_dim, k_panel, v_panel);
  } else {
    std::array<std::array<P, kMaxKeyDim>, kAttentionPanelPositions> read;
    std::array<const P*, kAttentionPanelPositions> read_rows;
    for (size_t i = 0; i < read.size(); ++i) {
      ReadRow(rows[i], layout.head_dim, read[i].data());
      read_rows[i] = read[i].data();
    }
    PanelsOfRows(read_rows.data(), layout.head_dim, layout.latent_dim, k_panel, v_panel);
  }
}

template void MakeLatentPanels(const KvLayout&, const BFloat16* const (&)[kAttentionPanelPositions],
                               BFloat16*, BFloat16*);
template void MakeLatentPanels(const KvLayout&,
                               const Float8E4M3* const (&)[kAttentionPanelPositions], BFloat16*,
                               BFloat16*);
template void MakeLatentPanels(const KvLayout&, const float* const (&)[kAttentionPanelPositions],
                               float*, float*);
template void MakeLatentPanels(const KvLayout&, const Float16* const (&)[kAttentionPanelPositions],
                               float*, float*);
template void MakeLatentPanels(const KvLayout&,
                               const Float8E4M3* const (&)[kAttentionPanelPositions], float*,
                               float*);

}  // namespace sluice::kernels
