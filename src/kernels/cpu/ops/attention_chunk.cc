// One chunk of attention, and the vector functions used before and after it.
//
// For each row: a score is one chain of multiply-adds over head_dim; the sum of weights is computed
// in lanes of positions; an output element is one chain over the positions that the row sees. None
// of this depends on the other rows of the tile.
#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"
#include "kernels/cpu/linear_tile_inl.h"
#include "kernels/cpu/soft_cap_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int kTileRows = kLanes == 8 ? 5 : 4;     // at most
constexpr int kTileVectors = kLanes == 8 ? 2 : 4;  // as many vectors of sums as the registers allow
constexpr int kScorePanels = kTileVectors / kPanelVectors;

template <bool kBf16, int kRows, int kPanels>
inline void ScorePanels(const AttentionChunkArgs& args, int row, int panel) {
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p)
    panels[p] = static_cast<const uint8_t*>(args.k_panels[panel + p]);
  const TileSums<kRows, kPanels> scores{
      true, args.scores + row * kAttentionChunk + panel * kPanelRows, kAttentionChunk};
  AddProducts<kBf16>(args.q + int64_t{row} * args.head_dim, args.head_dim, panels, args.head_dim,
                     scores);
}

// Computes the scores of rows [row, row + kRows) at positions [begin, end), which are extended to
// whole panels.
template <bool kBf16, int kRows>
inline void Score(const AttentionChunkArgs& args, int row, int begin, int end) {
  const int panels = (end + kPanelRows - 1) / kPanelRows;
  int panel = begin / kPanelRows;
  for (; panel + kScorePanels <= panels; panel += kScorePanels)
    ScorePanels<kBf16, kRows, kScorePanels>(args, row, panel);
  for (; panel < panels; ++panel) ScorePanels<kBf16, kRows, 1>(args, row, panel);
}

// Visits the vectors of positions that a row sees. Calls body(i, lanes) for the vector at i: with
// AllLanes() for whole vectors, otherwise with the mask of the lanes that the row sees.
template <typename Body>
__attribute__((always_inline)) inline void ForEachSeen(int start, int limit, const Body& body) {
  int i = start / kLanes * kLanes;
  if (i < start) {
    body(i, AndNot(FirstLanes(start - i), FirstLanes(limit - i)));
    i += kLanes;
  }
  for (; i + kLanes <= limit; i += kLanes) body(i, AllLanes());
  if (i < limit) body(i, FirstLanes(limit - i));
}

// Turns a row's scores into weights.
inline void Softmax(const AttentionChunkArgs& args, int row) {
  const int start = args.starts[row];
  const int limit = args.limits[row];
  float* scores = args.scores + row * kAttentionChunk;
  if (args.soft_cap > 0) CapScores(scores, start / kLanes * kLanes, limit, args.soft_cap);
  const Floats lowest = Set(-__builtin_inff());
  Floats largest = lowest;
  ForEachSeen(
      start, limit, [&](int i, auto seen) __attribute__((always_inline)) {
        largest = Max(Select(seen, Load(scores + i), lowest), largest);
      });
  args.largest[row] = MaxLane(largest);
  largest = Set(args.largest[row]);
  Floats sum = Zero();
  ForEachSeen(
      start, limit, [&](int i, auto seen) __attribute__((always_inline)) {
        const Floats weight = Select(seen, ExpOfNegative(Sub(Load(scores + i), largest)), Zero());
        Store(scores + i, weight);
        sum = Add(sum, weight);
      });
  args.sum[row] = SumLanes(sum);
}

// Adds the weighted values of positions [begin, end) to out[kRows][kVectors] from element d on; if
// `fresh`, starts from zero. `lanes`: the elements of each vector.
template <bool kBf16, int kRows, int kVectors, typename Lanes>
inline void AddValues(const AttentionChunkArgs& args, int row, int begin, int end, bool fresh,
                      int d, Lanes lanes) {
  const float* weights = args.scores + row * kAttentionChunk;
  float* out = args.out + int64_t{row} * args.value_dim + d;
  Floats acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = fresh ? Zero() : Load(out + int64_t{r} * args.value_dim + v * kLanes, lanes);
    }
  }
  const auto add = [&](const Floats(&values)[kVectors], int position)
      __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats weight = Set(weights[r * kAttentionChunk + position]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = MulAdd(weight, values[v], acc[r][v]);
    }
  };
  Floats values[kVectors];
  for (int position = begin; position < end;) {
    const int in_panel = position % kAttentionPanelPositions;
    const void* panel = args.v_panels[position / kAttentionPanelPositions];
    if constexpr (kBf16) {
      const auto* pairs =
          static_cast<const uint32_t*>(panel) + int64_t{in_panel / 2} * args.value_dim + d;
      if (position % 2 == 0) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          values[v] = FirstOfPair(LoadWords(pairs + v * kLanes, lanes));
        add(values, position);
        if (++position == end) break;
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        values[v] = SecondOfPair(LoadWords(pairs + v * kLanes, lanes));
      add(values, position);
      ++position;
    } else {
      const float* from = static_cast<const float*>(panel) + int64_t{in_panel} * args.value_dim + d;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) values[v] = Load(from + v * kLanes, lanes);
      add(values, position);
      ++position;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      Store(out + int64_t{r} * args.value_dim + v * kLanes, acc[r][v], lanes);
  }
}

template <bool kBf16, int kRows>
inline void AddAllValues(const AttentionChunkArgs& args, int row, int begin, int end, bool fresh) {
  constexpr int kWide = kTileVectors * kLanes;
  int d = 0;
  for (; d + kWide <= args.value_dim; d += kWide) {
    AddValues<kBf16, kRows, kTileVectors>(args, row, begin, end, fresh, d, AllLanes());
  }
  for (; d + kLanes <= args.value_dim; d += kLanes)
    AddValues<kBf16, kRows, 1>(args, row, begin, end, fresh, d, AllLanes());
  if (d < args.value_dim)
    AddValues<kBf16, kRows, 1>(args, row, begin, end, fresh, d, FirstLanes(args.value_dim - d));
}

template <bool kBf16, int kRows>
void AttendRows(const AttentionChunkArgs& args, int row) {
  // A row sees positions [start, limit). Both bounds are non-decreasing over the rows.
  const int last = row + kRows - 1;
  const int first_start = args.starts[row];
  const int last_start = args.starts[last];
  const int first_limit = args.limits[row];
  const int last_limit = args.limits[last];
  Score<kBf16, kRows>(args, row, first_start, last_limit);
  for (int r = row; r <= last; ++r) Softmax(args, r);
  // Positions that all rows see are added for all rows together. The other positions are added row
  // by row, because a weight of zero would not cancel a NaN.
  if (last_start >= first_limit) {
    for (int r = row; r <= last; ++r)
      AddAllValues<kBf16, 1>(args, r, args.starts[r], args.limits[r], true);
    return;
  }
  const bool apart = first_start < last_start;
  if (apart) {
    for (int r = row; r <= last; ++r)
      AddAllValues<kBf16, 1>(args, r, args.starts[r], last_start, true);
  }
  AddAllValues<kBf16, kRows>(args, row, last_start, first_limit, !apart);
  if (first_limit == last_limit) return;
  for (int r = row; r <= last; ++r) {
    if (first_limit < args.limits[r])
      AddAllValues<kBf16, 1>(args, r, first_limit, args.limits[r], false);
  }
}

// A tile of 1 to kRows rows.
template <bool kBf16, int kRows>
inline void AttendUpTo(const AttentionChunkArgs& args, int row, int rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return AttendUpTo<kBf16, kRows - 1>(args, row, rows);
  }
  AttendRows<kBf16, kRows>(args, row);
}

template <bool kBf16>
inline void AttentionChunkOf(const AttentionChunkArgs& args) {
  for (int row = 0; row < args.rows;) {
    if (args.limits[row] == 0) {
      ++row;
      continue;
    }
    int end = row + 1;
    while (end < args.rows && args.limits[end] > 0) ++end;
    const int rows = end - row;
    const int tiles = (rows + kTileRows - 1) / kTileRows;
    for (int i = 0; i < tiles; ++i) {
      const int begin = rows * i / tiles;
      AttendUpTo<kBf16, kTileRows>(args, row + begin, rows * (i + 1) / tiles - begin);
    }
    row = end;
  }
}

}  // namespace

void AttentionChunk(const AttentionChunkArgs& args) {
  if (args.bf16)
    AttentionChunkOf<true>(args);
  else
    AttentionChunkOf<false>(args);
}

void DivideRow(const float* x, float divisor, int64_t count, void* y, bool y_bf16) {
  const Floats divisors = Set(divisor);
  ForEachVector(count, [&](int64_t i, auto lanes) {
    StoreAs(y, i, Div(Load(x + i, lanes), divisors), lanes, y_bf16);
  });
}

void AddScaled(const float* x, float x_factor, float y_factor, int64_t count, float* y) {
  const Floats x_factors = Set(x_factor), y_factors = Set(y_factor);
  ForEachVector(count, [&](int64_t i, auto lanes) {
    Store(y + i, MulAdd(Load(x + i, lanes), x_factors, Mul(Load(y + i, lanes), y_factors)), lanes);
  });
}

void DecodeE4M3(const uint8_t* codes, int64_t count, uint16_t* bf16) {
  for (int64_t i = 0; i < count; i += kE4M3Codes) DecodeE4M3Codes(codes + i, bf16 + i);
}

}  // namespace sluice::kernels::SLUICE_ISA
