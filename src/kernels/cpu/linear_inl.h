// linear with F32 multiply-adds. Uses the vector operations of a simd.h, which must be included
// first.
//
// Every output element is one chain of fused multiply-adds over k in ascending order, regardless of
// the tile that computes it. If blocks of inputs have scales, each block is such a chain, and
// another chain adds the sums of the blocks times their scales. A tile is kRows activation rows by
// kPanels weight panels; x is broadcast, the lanes are output rows.
//
// Inputs are processed in segments. In each, BF16 inputs are converted to F32 and codes to BF16 in
// the cache, once for all tiles. For many rows of BF16 inputs: linear_widened_inl.h.
#pragma once

#include "kernels/cpu/all_lanes_inl.h"
#include "kernels/cpu/code_places_inl.h"
#include "kernels/cpu/linear_tile_inl.h"
#include "kernels/cpu/tiles_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kStepInputs = 32;
constexpr int64_t kSegmentInputs = 256;
constexpr int64_t kChunkRows = 90;  // a multiple of a tile's number of rows, which is 5 or 6

// A range of inputs within one block, or within the row if there are no blocks.
struct Segment {
  int64_t begin;
  int64_t count;
  bool starts;  // whether it begins its block
  bool ends;
};

// Returns the segment of at most `max_count` inputs from `begin` on; its count is 0 at the end of
// the row.
inline Segment SegmentAt(const LinearArgs& args, int64_t begin,
                         int64_t max_count = kSegmentInputs) {
  const int64_t block = args.block_scales == nullptr ? args.cols : args.block_steps * kStepInputs;
  const int64_t in_block = begin % block;
  int64_t count = args.cols - begin;
  if (block - in_block < count) count = block - in_block;
  if (count > max_count) count = max_count;
  return {begin, count, in_block == 0, in_block + count == block || begin + count == args.cols};
}

// The sums of a chunk of rows and the panels of a unit: [row][16 * panels].
struct ChunkSums {
  // Returns the sums of the current block or, without blocks, of all inputs.
  float* At(int64_t row, int64_t panel) { return sums + row * stride + panel * kPanelRows; }
  // Returns the scaled sum of the previous blocks.
  float* TotalAt(int64_t row, int64_t panel) { return totals + row * stride + panel * kPanelRows; }

  // Returns the sums from panel `panel` on.
  ChunkSums From(int64_t panel) const {
    return {stride, sums + panel * kPanelRows, totals + panel * kPanelRows};
  }

  int64_t stride;
  float* sums;
  float* totals;
};

template <int kRows, int kPanels>
inline TileSums<kRows, kPanels> TileSumsAt(const LinearArgs& args, const Segment& segment,
                                           ChunkSums& sums, int64_t row, int64_t first_panel,
                                           int64_t panel) {
  const float* scales = nullptr;
  if (args.block_scales != nullptr && segment.ends) {
    scales = args.block_scales + (first_panel + panel) * args.panel_block_scales +
             segment.begin / (args.block_steps * kStepInputs) * kPanelRows;
  }
  return {segment.starts, sums.At(row, panel),     sums.stride,
          scales,         args.panel_block_scales, sums.TotalAt(row, panel)};
}

// Converts the segment's inputs of `rows` rows to F32, rows kSegmentInputs apart.
inline void WidenInputs(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t count,
                        float* widened) {
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t* from = x + row * x_stride;
    float* to = widened + row * kSegmentInputs;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) Store(to + i, LoadBf16(from + i));
    if (i < count) Store(to + i, LoadBf16(from + i, FirstLanes(count - i)));
  }
}

// Writes the sums of a chunk to y, scaled and with the bias.
inline void StoreChunk(const LinearArgs& args, int64_t row_begin, int64_t rows, int64_t panel_begin,
                       ChunkSums& sums) {
  const int64_t first = panel_begin * kPanelRows;
  int64_t outputs = args.outputs - first;
  if (outputs > sums.stride) outputs = sums.stride;
  const float* from = args.block_scales != nullptr ? sums.totals : sums.sums;
  for (int64_t row = 0; row < rows; ++row) {
    float* y = args.y + (row_begin + row) * args.y_stride + first;
    for (int64_t n = 0; n < outputs; n += kLanes) {
      WithLanes(
          outputs - n, [&](auto lanes) __attribute__((always_inline)) {
            Floats value = Load(from + row * sums.stride + n);
            if (args.row_scales != nullptr)
              value = Mul(value, Load(args.row_scales + first + n, lanes));
            if (args.bias != nullptr) value = Add(value, Load(args.bias + first + n, lanes));
            Store(y + n, value, lanes);
          });
    }
  }
}

// Computes the outputs of at most kChunkRows rows and kMaxPanelsPerUnit panels, or of fewer rows
// and more panels with as many outputs together. For each segment,
// add(segment, x, x_stride, sums) must add its products for all rows; x: F32 inputs of the first
// row.
template <bool kBf16Inputs, typename AddSegment>
inline void MultiplyChunk(const LinearArgs& args, int64_t row_begin, int64_t rows,
                          int64_t panel_begin, int64_t panel_end, const AddSegment& add) {
  constexpr int64_t kSums = kChunkRows * kMaxPanelsPerUnit * kPanelRows;
  alignas(64) float sums_of_block[kSums];
  alignas(64) float totals[kSums];
  ChunkSums sums{(panel_end - panel_begin) * kPanelRows, sums_of_block, totals};
  if (args.block_scales != nullptr) {
    for (int64_t i = 0; i < rows * sums.stride; i += kLanes) Store(totals + i, Zero());
  }
  alignas(64) float widened[kBf16Inputs ? kChunkRows * kSegmentInputs : 1];
  for (Segment segment = SegmentAt(args, 0); segment.count > 0;
       segment = SegmentAt(args, segment.begin + segment.count)) {
    if constexpr (kBf16Inputs) {
      const auto* x =
          static_cast<const uint16_t*>(args.x) + row_begin * args.x_stride + segment.begin;
      WidenInputs(x, args.x_stride, rows, segment.count, widened);
      add(segment, widened, kSegmentInputs, sums);
    } else {
      const auto* x = static_cast<const float*>(args.x) + row_begin * args.x_stride + segment.begin;
      add(segment, x, args.x_stride, sums);
    }
  }
  StoreChunk(args, row_begin, rows, panel_begin, sums);
}

// Like AddProducts, but not inlined: in the loops over tiles, GCC 12 would keep the sums on the
// stack.
template <bool kBf16Weights, int kAhead, int kRows, int kPanels>
__attribute__((noinline)) void AddLines(const float* x, int64_t x_stride,
                                        const uint8_t* const (&panels)[kPanels], int64_t count,
                                        const TileSums<kRows, kPanels>& sums,
                                        const uint8_t* const* ahead) {
  AddProducts<kBf16Weights, kRows, kPanels, kAhead>(x, x_stride, panels, count, sums, ahead);
}

// A place in the weights: a panel, and the first of some inputs.
struct WeightPlace {
  int64_t panel;
  int64_t input;
};

// Returns where weights are read after the segment of the kPanels panels at panel_begin + panel.
template <int kPanels>
inline WeightPlace PlaceAfter(const LinearArgs& args, const Segment& segment, int64_t panel_begin,
                              int64_t panel, int64_t panel_end) {
  const int64_t next = panel_begin + panel + kPanels;
  if (next + kPanels <= panel_end) return {next, segment.begin};
  const int64_t end = segment.begin + segment.count;
  if (end < args.cols) return {panel_begin, end};
  return {panel_end, 0};
}

// Adds the products of a segment in tiles of up to kMaxRows rows by kWidePanels panels.
template <bool kBf16Weights, int kMaxRows, int kWidePanels>
inline void AddSegment(const LinearArgs& args, const Segment& segment, const float* x,
                       int64_t x_stride, int64_t rows, int64_t panel_begin, int64_t panel_end,
                       ChunkSums& sums) {
  constexpr int64_t kInputBytes = kPanelRows * (kBf16Weights ? 2 : 4);
  alignas(64) uint8_t expanded[kBf16Weights ? kWidePanels * kSegmentInputs * kInputBytes : 1];
  const int64_t step = segment.begin / kStepInputs;
  // AVX2 needs prefetching: its tiles are so small that the processor does not read ahead enough.
  constexpr bool kPrefetches = kBf16Weights && kLanes == 8;
  const bool prefetches = kPrefetches && args.expand == nullptr;
  ForEachPanelGroup<kWidePanels>(0, panel_end - panel_begin, [&]<int kPanels>(int64_t panel) {
    const uint8_t* panels[kPanels];
    const uint8_t* ahead[kPanels];
    const WeightPlace next = PlaceAfter<kPanels>(args, segment, panel_begin, panel, panel_end);
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = panel_begin + panel + p;
      panels[p] = CodesAt(args, index, segment.begin, kInputBytes);
      ahead[p] = CodesAt(args, next.panel + p, next.input, kInputBytes);
      if constexpr (kBf16Weights) {
        if (args.expand == nullptr) continue;
        uint8_t* const lines = expanded + p * kSegmentInputs * kInputBytes;
        args.expand(CodesAt(args, index, step, args.code_step_bytes), ScalesAt(args, index, step),
                    (segment.count + kStepInputs - 1) / kStepInputs, lines);
        panels[p] = lines;
      }
    }
    ForEachTile<kMaxRows, kPanels>(
        0, rows, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
          if constexpr (kTilePanels == kPanels) {
            const auto tile =
                TileSumsAt<kRows, kPanels>(args, segment, sums, row, panel_begin, panel);
            const float* const inputs = x + row * x_stride;
            if (prefetches && row == 0) {
              AddLines<kBf16Weights, kPrefetches ? kPanels : 0>(inputs, x_stride, panels,
                                                                segment.count, tile, ahead);
            } else {
              AddLines<kBf16Weights, 0>(inputs, x_stride, panels, segment.count, tile, nullptr);
            }
          }
        });
  });
}

template <bool kBf16Inputs, bool kBf16Weights, int kMaxRows, int kWidePanels>
inline void MultiplyRange(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  for (int64_t row = row_begin; row < row_end; row += kChunkRows) {
    const int64_t rows = row_end - row < kChunkRows ? row_end - row : kChunkRows;
    MultiplyChunk<kBf16Inputs>(
        args, row, rows, panel_begin, panel_end,
        [&](const Segment& segment, const float* x, int64_t x_stride, ChunkSums& sums) {
          AddSegment<kBf16Weights, kMaxRows, kWidePanels>(args, segment, x, x_stride, rows,
                                                          panel_begin, panel_end, sums);
        });
  }
}

}  // namespace
}  // namespace sluice::kernels
