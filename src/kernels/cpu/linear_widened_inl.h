// linear of BF16 inputs and weights with F32 multiply-adds, for many rows. Uses the vector
// operations of a simd.h, which must be included first. Same arithmetic as linear_inl.h, if the
// order is ascending.
//
// Inputs are processed in segments. In each, the weights of a group of panels are converted to F32
// once for all rows; the inputs of a few tiles of rows are converted as well. So all operands of a
// tile are in L1, and its loop contains only multiply-adds and loads.
#pragma once

#include "kernels/cpu/linear_inl.h"

namespace sluice::kernels {
namespace {

// Inputs of a segment: F32 weights of four panels take 32 KiB.
constexpr int64_t kWidenedInputs = 128;
constexpr int64_t kWidenedPairs = kWidenedInputs / 2;
// Distances, in numbers, between the converted rows of inputs and between the converted panels. Not
// powers of two, so that lines loaded together are in different sets of L1.
constexpr int64_t kWidenedRowStride = kWidenedInputs + 16;
constexpr int64_t kWidenedPanelStride = (kWidenedInputs + 5) * kPanelRows;
// Tiles of rows whose inputs are converted together.
constexpr int kWidenedTiles = 2;
// Minimum number of rows for which these functions are faster than those that convert weights again
// for each tile.
constexpr int64_t kWidenedRows = 16;

// An order class states which product of a pair of inputs is added first. Its `Control` object sets
// the processor's rounding mode during the multiply-adds. Ascending: first input first, with the
// thread's usual rounding.
struct Ascending {
  static constexpr bool kSecondFirst = false;
  struct Control {};
};

// Converts lines of BF16 pairs to F32: [pair][2][16].
inline void WidenLines(const uint8_t* lines, int64_t pairs, float* widened) {
  for (int64_t i = 0; i < pairs; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      const Words words = LoadWords(lines + (i * kPanelRows + v * kLanes) * 4);
      float* const to = widened + i * 2 * kPanelRows + v * kLanes;
      Store(to, FirstOfPair(words));
      Store(to + kPanelRows, SecondOfPair(words));
    }
  }
}

// Converts `count` inputs of some rows to F32, rows kWidenedRowStride apart: [2][kWidenedPairs],
// the first inputs of all pairs and then the second ones. An odd last input is followed by a zero.
inline void WidenPairs(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t count,
                       float* widened) {
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t* const from = x + row * x_stride;
    float* const to = widened + row * kWidenedRowStride;
    const auto widen = [&](int64_t pair, Words words) __attribute__((always_inline)) {
      Store(to + pair, FirstOfPair(words));
      Store(to + kWidenedPairs + pair, SecondOfPair(words));
    };
    int64_t pair = 0;
    for (; 2 * (pair + kLanes) <= count; pair += kLanes) widen(pair, LoadWords(from + 2 * pair));
    if (2 * pair == count) continue;
    alignas(64) uint16_t last[2 * kLanes] = {};
    for (int64_t i = 2 * pair; i < count; ++i) last[i - 2 * pair] = from[i];
    widen(pair, LoadWords(last));
  }
}

// Adds a tile's products of `count` inputs; x, w: outputs of WidenPairs and WidenLines. Not
// inlined: in the loops over tiles, GCC 12 would keep sums on the stack.
template <typename Order, int kRows, int kPanels>
__attribute__((noinline)) void AddWidened(const float* x, const float* w, int64_t count,
                                          const TileSums<kRows, kPanels>& sums) {
  constexpr int kVectors = kPanels * kPanelVectors;
  Floats acc[kRows][kVectors];
  sums.Load(acc);
  // Adds the products of the first inputs of pair i, or of the second ones.
  const auto add = [&](int64_t i, bool second) __attribute__((always_inline)) {
    Floats weights[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = Load(w + v / kPanelVectors * kWidenedPanelStride +
                        (2 * i + (second ? 1 : 0)) * kPanelRows + v % kPanelVectors * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats input = Set(x[r * kWidenedRowStride + (second ? kWidenedPairs : 0) + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = MulAdd(input, weights[v], acc[r][v]);
    }
  };
  for (int64_t i = 0; i < count / 2; ++i) {
    add(i, Order::kSecondFirst);
    add(i, !Order::kSecondFirst);
  }
  if (count % 2 != 0) {
    if constexpr (Order::kSecondFirst) add(count / 2, true);
    add(count / 2, false);
  }
  sums.Store(acc);
}

// Adds a block's sums, times its scales, to the totals of `rows` rows.
template <int kPanels>
inline void FoldBlock(const LinearArgs& args, const Segment& segment, int64_t rows,
                      int64_t first_panel, int64_t panel, ChunkSums& sums) {
  const auto first = TileSumsAt<1, kPanels>(args, segment, sums, 0, first_panel, panel);
  for (int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanels * kPanelVectors; ++v) {
      const Floats scale =
          Load(first.scales + v / kPanelVectors * first.panel_scales + v % kPanelVectors * kLanes);
      float* const total = first.totals + row * sums.stride + v * kLanes;
      Store(total, MulAdd(Load(first.sums + row * sums.stride + v * kLanes), scale, Load(total)));
    }
  }
}

// Adds the products of a segment of at most kWidenedInputs inputs, for at most kChunkRows rows.
// x: the segment's inputs of the first row.
template <typename Order, int kMaxRows, int kWidePanels>
inline void AddWidenedSegment(const LinearArgs& args, const Segment& segment, const uint16_t* x,
                              int64_t rows, int64_t panel_begin, int64_t panel_end,
                              ChunkSums& sums) {
  constexpr int64_t kInputBytes = kPanelRows * 2;
  alignas(64) float weights[kWidePanels * kWidenedPanelStride];
  alignas(64) float inputs[kWidenedTiles * kMaxRows * kWidenedRowStride];
  alignas(64) uint8_t expanded[kWidenedInputs * kInputBytes];
  const int64_t step = segment.begin / kStepInputs;
  ForEachPanelGroup<kWidePanels>(0, panel_end - panel_begin, [&]<int kPanels>(int64_t panel) {
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = panel_begin + panel + p;
      const uint8_t* lines = CodesAt(args, index, segment.begin, kInputBytes);
      if (args.expand != nullptr) {
        args.expand(CodesAt(args, index, step, args.code_step_bytes), ScalesAt(args, index, step),
                    (segment.count + kStepInputs - 1) / kStepInputs, expanded);
        lines = expanded;
      }
      WidenLines(lines, (segment.count + 1) / 2, weights + p * kWidenedPanelStride);
    }
    for (int64_t begin = 0; begin < rows; begin += kWidenedTiles * kMaxRows) {
      const int64_t left = rows - begin;
      const int64_t count = left < kWidenedTiles * kMaxRows ? left : kWidenedTiles * kMaxRows;
      WidenPairs(x + begin * args.x_stride, args.x_stride, count, segment.count, inputs);
      [[maybe_unused]] const typename Order::Control control;
      ForEachTile<kMaxRows, kPanels>(
          0, count, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
            if constexpr (kTilePanels == kPanels) {
              auto tile =
                  TileSumsAt<kRows, kPanels>(args, segment, sums, begin + row, panel_begin, panel);
              tile.scales = nullptr;  // FoldBlock folds the block, with the usual rounding
              AddWidened<Order>(inputs + row * kWidenedRowStride, weights, segment.count, tile);
            }
          });
    }
    if (args.block_scales != nullptr && segment.ends)
      FoldBlock<kPanels>(args, segment, rows, panel_begin, panel, sums);
  });
}

// Computes the product of some rows and panels, for at least kWidenedRows rows.
template <typename Order, int kMaxRows, int kWidePanels>
inline void MultiplyWidened(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                            int64_t panel_begin, int64_t panel_end) {
  constexpr int64_t kSums = kChunkRows * kMaxPanelsPerUnit * kPanelRows;
  alignas(64) float sums_of_block[kSums];
  alignas(64) float totals[kSums];
  ChunkSums sums{(panel_end - panel_begin) * kPanelRows, sums_of_block, totals};
  for (int64_t row = row_begin; row < row_end; row += kChunkRows) {
    const int64_t rows = row_end - row < kChunkRows ? row_end - row : kChunkRows;
    if (args.block_scales != nullptr) {
      for (int64_t i = 0; i < rows * sums.stride; i += kLanes) Store(totals + i, Zero());
    }
    for (int64_t begin = 0; begin < args.cols;) {
      const Segment segment = SegmentAt(args, begin, kWidenedInputs);
      const auto* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride + begin;
      AddWidenedSegment<Order, kMaxRows, kWidePanels>(args, segment, x, rows, panel_begin,
                                                      panel_end, sums);
      begin += segment.count;
    }
    StoreChunk(args, row, rows, panel_begin, sums);
  }
}

}  // namespace
}  // namespace sluice::kernels
