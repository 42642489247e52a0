// One chunk of attention with AMX tiles, for BF16 keys and values.
//
// A panel of 16 keys is a tile without rearrangement, as are 16 elements of a panel's values. If
// queries and softmax weights may not be rounded to BF16, each is split into two BF16 numbers,
// which together hold 16 bits of the F32 value. So the instruction's format costs almost no
// accuracy.
//
// For each row: a score is one chain of tile steps over head_dim; the sum of weights is computed in
// lanes of positions; an output element is one chain over panels of positions, in which positions
// that the row does not see have weight zero. None of this depends on the other rows of the tile.
#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512/simd.h"

#include "kernels/cpu/amx/kernels.h"
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/avx512_bf16/softmax_inl.h"
#include "kernels/cpu/exp_inl.h"
#include "kernels/cpu/soft_cap_inl.h"

namespace sluice::kernels::amx {
namespace {

constexpr int kMostHeadDim = 256;  // maximum size of the arrays on the stack
constexpr int kPositions = kAttentionPanelPositions;

// Tiles 0 to 3 contain sums, tile 4 queries, tile 5 keys, tile 6 weights and tile 7 values.
inline void ConfigureAttention(int rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = static_cast<uint8_t>(rows);
  }
  config.rows[5] = kStepPairs;
  config.row_bytes[6] = kPositions * 2;
  config.rows[7] = kPositions / 2;
  StoreBefore(&config);
  _tile_loadconfig(&config);
}

// Splits values into two BF16 numbers: the upper half of the bits, and the remainder, rounded.
inline void StoreSplit(uint16_t* high, uint16_t* low, Floats value) {
  const __m512i bits = _mm512_castps_si512(value);
  const Floats rest = Sub(value, SecondOfPair(bits));
  const __m512i rest_bits = _mm512_add_epi32(_mm512_castps_si512(rest), _mm512_set1_epi32(0x8000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rest_bits, 16)));
}

// The queries or weights of a tile of rows as BF16 numbers: rounded to one number, or split into
// kParts = 2 numbers.
template <int kParts, int kColumns>
struct alignas(64) Bf16Rows {
  uint16_t parts[kParts][kTileRows][kColumns];
};

// Computes scores[rows, kAttentionChunk] of the tile's rows at the positions of kPanels panels.
template <int kParts, int kPanels>
inline void ScorePanels(const AttentionChunkArgs& args, const Bf16Rows<kParts, kMostHeadDim>& q,
                        int panel, float* scores) {
  _tile_zero(0);
  if constexpr (kPanels > 1) {
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int d = 0; d < args.head_dim; d += kStepInputs) {
    for (int part = 0; part < kParts; ++part) {
      _tile_loadd(4, &q.parts[part][0][d], kMostHeadDim * 2);
      const int64_t offset = int64_t{d} / 2 * kLineBytes;
      const auto keys = [&](int i) {
        return static_cast<const uint8_t*>(args.k_panels[panel + i]) + offset;
      };
      _tile_loadd(5, keys(0), kLineBytes);
      _tile_dpbf16ps(0, 4, 5);
      if constexpr (kPanels > 1) {
        _tile_loadd(5, keys(1), kLineBytes);
        _tile_dpbf16ps(1, 4, 5);
        _tile_loadd(5, keys(2), kLineBytes);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(5, keys(3), kLineBytes);
        _tile_dpbf16ps(3, 4, 5);
      }
    }
  }
  float* to = scores + panel * kPositions;
  constexpr int64_t kScoreBytes = kAttentionChunk * 4;
  _tile_stored(0, to, kScoreBytes);
  if constexpr (kPanels > 1) {
    _tile_stored(1, to + kPositions, kScoreBytes);
    _tile_stored(2, to + 2 * kPositions, kScoreBytes);
    _tile_stored(3, to + 3 * kPositions, kScoreBytes);
  }
}

// Converts a row's scores to weights for positions [begin, end), which are whole panels. Positions
// that the row does not see get zero.
inline void SplitSoftmax(const AttentionChunkArgs& args, int row, int begin, int end, float* scores,
                         uint16_t* high, uint16_t* low) {
  const int start = args.starts[row];
  const int limit = args.limits[row];
  if (args.soft_cap > 0) CapScores(scores, begin, end, args.soft_cap);
  const Floats lowest = Set(-__builtin_inff());
  Floats largest = lowest;
  const auto seen = [&](int i) { return AndNot(FirstLanes(start - i), FirstLanes(limit - i)); };
  for (int i = begin; i < end; i += kLanes) {
    largest = Max(Select(seen(i), Load(scores + i), lowest), largest);
  }
  args.largest[row] = MaxLane(largest);
  largest = Set(args.largest[row]);
  Floats sum = Zero();
  for (int i = begin; i < end; i += kLanes) {
    const Floats weight = Select(seen(i), Exp(Sub(Load(scores + i), largest)), Zero());
    StoreSplit(high + i, low + i, weight);
    sum = Add(sum, weight);
  }
  args.sum[row] = SumLanes(sum);
}

// Like SplitSoftmax, with weights rounded to BF16, which overwrite the first half of the scores.
inline void RoundedSoftmax(const AttentionChunkArgs& args, int row, int begin, int end,
                           float* scores) {
  const int start = args.starts[row];
  const int limit = args.limits[row];
  Softmax(scores, start, limit, args.soft_cap, args.largest[row], args.sum[row]);
  auto* weights = reinterpret_cast<uint16_t*>(scores);
  constexpr int kStep = 2 * kLanes;  // Softmax writes whole steps of this size
  for (int i = begin; i < start / kStep * kStep; i += kPositions)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + i), _mm256_setzero_si256());
  for (int i = (limit + kStep - 1) / kStep * kStep; i < end; i += kPositions)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + i), _mm256_setzero_si256());
}

// The weights of a tile of rows. Each row's weights begin `row_bytes` after those of the previous
// row.
template <int kParts>
struct Weights {
  const uint16_t* parts[kParts];
  int64_t row_bytes;
};

// Computes output elements [d, d + 16 * kGroups) of the tile's rows.
template <int kParts, int kGroups>
inline void AddValues(const AttentionChunkArgs& args, const Weights<kParts>& weights,
                      const void* const* v_panels, int first_panel, int panels, int row, int d) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kGroups > 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  const int64_t pair_bytes = int64_t{args.value_dim} * 4;
  for (int panel = first_panel; panel < panels; ++panel) {
    const uint8_t* values = static_cast<const uint8_t*>(v_panels[panel]) + int64_t{d} * 4;
    for (int part = 0; part < kParts; ++part) {
      _tile_loadd(6, weights.parts[part] + panel * kPositions, weights.row_bytes);
      _tile_loadd(7, values, pair_bytes);
      _tile_dpbf16ps(0, 6, 7);
      _tile_loadd(7, values + 64, pair_bytes);
      _tile_dpbf16ps(1, 6, 7);
      if constexpr (kGroups > 2) {
        _tile_loadd(7, values + 128, pair_bytes);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(7, values + 192, pair_bytes);
        _tile_dpbf16ps(3, 6, 7);
      }
    }
  }
  float* out = args.out + int64_t{row} * args.value_dim + d;
  _tile_stored(0, out, pair_bytes);
  _tile_stored(1, out + 16, pair_bytes);
  if constexpr (kGroups > 2) {
    _tile_stored(2, out + 32, pair_bytes);
    _tile_stored(3, out + 48, pair_bytes);
  }
}

inline uint16_t ValueBits(const AttentionChunkArgs& args, int position, int d) {
  const auto* panel = static_cast<const uint16_t*>(args.v_panels[position / kPositions]);
  const int in_panel = position % kPositions;
  return panel[(int64_t{in_panel / 2} * args.value_dim + d) * 2 + in_panel % 2];
}

// Copies a panel of values, with zeros outside of positions [begin, end) of the chunk.
inline void CopyPanel(const AttentionChunkArgs& args, int panel, int begin, int end,
                      uint16_t* copy) {
  for (int i = 0; i < kPositions; ++i) {
    const int position = panel * kPositions + i;
    const bool inside = position >= begin && position < end;
    for (int d = 0; d < args.value_dim; ++d) {
      copy[(i / 2 * args.value_dim + d) * 2 + i % 2] = inside ? ValueBits(args, position, d) : 0;
    }
  }
  StoreBefore(copy);
}

// Returns whether a value at positions [begin, end) is infinite or NaN, which a weight of zero
// would not cancel.
inline bool HasNonFinite(const AttentionChunkArgs& args, int begin, int end) {
  unsigned found = 0;
  for (int position = begin; position < end; ++position) {
    for (int d = 0; d < args.value_dim; ++d)
      found |= (ValueBits(args, position, d) & 0x7F80) == 0x7F80;
  }
  return found != 0;
}

// Computes rows [row, row + rows), at most 16, each of which sees at least one position of the
// chunk.
template <int kParts>
void AttendTile(const AttentionChunkArgs& args, int row, int rows) {
  // A row sees positions [start, limit). Both bounds are non-decreasing over the rows.
  const int begin = args.starts[row];
  const int end = args.limits[row + rows - 1];
  if (rows > 1 && (HasNonFinite(args, begin, args.starts[row + rows - 1]) ||
                   HasNonFinite(args, args.limits[row], end))) {
    for (int r = row; r < row + rows; ++r) AttendTile<kParts>(args, r, 1);
    return;
  }
  ConfigureAttention(rows);
  const int first_panel = begin / kPositions;
  const int panels = (end + kPositions - 1) / kPositions;

  Bf16Rows<kParts, kMostHeadDim> q;
  for (int r = 0; r < rows; ++r) {
    const float* from = args.q + int64_t{row + r} * args.head_dim;
    for (int d = 0; d < args.head_dim; d += kLanes) {
      if constexpr (kParts == 1) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(&q.parts[0][r][d]),
                           RoundedBits(Load(from + d)));
      } else {
        StoreSplit(&q.parts[0][r][d], &q.parts[1][r][d], Load(from + d));
      }
    }
  }
  StoreBefore(&q);
  // Every tile puts its scores at the beginning of the scratch, so that they stay in L1.
  float* scores = args.scores;
  int panel = first_panel;
  for (; panel + 4 <= panels; panel += 4) ScorePanels<kParts, 4>(args, q, panel, scores);
  for (; panel < panels; ++panel) ScorePanels<kParts, 1>(args, q, panel, scores);

  const int first = first_panel * kPositions, last = panels * kPositions;
  Bf16Rows<2, kParts == 1 ? 1 : kAttentionChunk> split;
  Weights<kParts> weights;
  for (int r = 0; r < rows; ++r) {
    float* row_scores = scores + r * kAttentionChunk;
    if constexpr (kParts == 1) {
      RoundedSoftmax(args, row + r, first, last, row_scores);
    } else {
      SplitSoftmax(args, row + r, first, last, row_scores, split.parts[0][r], split.parts[1][r]);
    }
  }
  if constexpr (kParts == 1) {
    weights = {{reinterpret_cast<const uint16_t*>(scores)}, kAttentionChunk * 4};
    StoreBefore(scores);
  } else {
    weights = {{split.parts[0][0], split.parts[1][0]}, kAttentionChunk * 2};
    StoreBefore(&split);
  }

  // The first and the last panel may contain values of other sequences, or positions that no row
  // may see. Copies of these panels with zeros in those places are used instead.
  const void* v_panels[kAttentionPanels];
  for (int i = first_panel; i < panels; ++i) v_panels[i] = args.v_panels[i];
  alignas(64) uint16_t copies[2][kPositions * kMostHeadDim];
  if (begin % kPositions != 0) {
    CopyPanel(args, first_panel, begin, end, copies[0]);
    v_panels[first_panel] = copies[0];
  }
  if (end % kPositions != 0) {
    CopyPanel(args, panels - 1, begin, end, copies[1]);
    v_panels[panels - 1] = copies[1];
  }
  int d = 0;
  for (; d + 64 <= args.value_dim; d += 64)
    AddValues<kParts, 4>(args, weights, v_panels, first_panel, panels, row, d);
  for (; d < args.value_dim; d += 32)
    AddValues<kParts, 2>(args, weights, v_panels, first_panel, panels, row, d);
}

}  // namespace

void AttentionChunk(const AttentionChunkArgs& args) {
  if (!args.bf16 || args.head_dim % kStepInputs != 0 || args.value_dim % kStepInputs != 0 ||
      args.head_dim > kMostHeadDim)
    return avx512::AttentionChunk(args);
  for (int row = 0; row < args.rows;) {
    if (args.limits[row] == 0) {
      ++row;
      continue;
    }
    int rows = 1;
    while (rows < kTileRows && row + rows < args.rows && args.limits[row + rows] > 0) ++rows;
    if (args.rounds)
      AttendTile<1>(args, row, rows);
    else
      AttendTile<2>(args, row, rows);
    row += rows;
  }
  _tile_release();
}

}  // namespace sluice::kernels::amx
