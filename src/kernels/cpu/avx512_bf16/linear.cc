// linear with BF16 dot products (vdpbf16ps).
//
// Every output element is one chain of dot-product steps over pairs of inputs in ascending order,
// regardless of the tile that computes it. The instruction rounds each of a pair's two sums to
// nearest and flushes subnormal inputs and results to zero. If blocks of inputs have scales, each
// block is a separate chain, and another chain adds their sums times the scales.
//
// For few rows, narrow codes are converted to BF16 in registers. For more rows, they are converted
// in L1, segment by segment; for many rows, before the product (linear_unit.cc). For an
// intermediate number of rows, BF16 weights are also multiplied segment by segment, so that the
// next segment is fetched from memory during the products.
#include <immintrin.h>

#include "kernels/cpu/avx512/codes_inl.h"
#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512_bf16/dot_inl.h"
#include "kernels/cpu/avx512_bf16/e4m3_bytes_inl.h"
#include "kernels/cpu/avx512_bf16/kernels.h"
#include "kernels/cpu/avx512_bf16/nvfp4_permutations_inl.h"
#include "kernels/cpu/code_places_inl.h"
#include "kernels/cpu/tiles_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

constexpr int kPanelRows = 16;
constexpr int kTileRows = 6;
constexpr int kWidePanels = 4;
// kFewRows x kFewPanels: the number of sums that fit in registers while codes are expanded.
// kFewestRows: maximum number of rows for Among::kFewProducts.
constexpr int kFewRows = 8;
constexpr int kFewPanels = 2;
constexpr int kFewestRows = 4;
// Maximum number of rows for which expanding codes in registers is faster: kShortCodeRows for
// formats that need few instructions, kLongCodeRows for the others.
constexpr int64_t kShortCodeRows = 24;
constexpr int64_t kLongCodeRows = 16;
constexpr int64_t kLineBytes = 64;  // 16 pairs: one pair of inputs for each row of a panel
constexpr int64_t kStepPairs = 16;
constexpr int64_t kStepBytes = kStepPairs * kLineBytes;

// Adds the products of whole pairs of inputs, whose lines begin at lines[]. Also prefetches
// `ahead_bytes` per pair from each ahead[].
template <int kRows, int kPanels, int kAhead = 0>
__attribute__((always_inline)) inline void AddPairs(
    const uint16_t* x, int64_t x_stride, int64_t pairs, const uint8_t* const (&lines)[kPanels],
    __m512 (&acc)[kRows][kPanels], const uint8_t* const* ahead = nullptr, int64_t ahead_bytes = 0) {
  for (int64_t i = 0; i < pairs; ++i) {
#pragma GCC unroll 8
    for (int a = 0; a < kAhead; ++a)
      _mm_prefetch(reinterpret_cast<const char*>(ahead[a] + i * ahead_bytes), _MM_HINT_T1);
    __m512bh weights[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      weights[p] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(lines[p] + i * kLineBytes));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512bh inputs = Broadcast(x + r * x_stride + 2 * i);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], inputs, weights[p]);
    }
  }
}

// Adds the last pair of an odd number of inputs, whose second input is missing.
template <int kRows, int kPanels>
__attribute__((always_inline)) inline void AddLast(const uint16_t* x, int64_t x_stride,
                                                   const uint8_t* const (&lines)[kPanels],
                                                   int64_t pairs, __m512 (&acc)[kRows][kPanels]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto inputs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(x[r * x_stride + 2 * pairs]));
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = _mm512_dpbf16_ps(
          acc[r][p], inputs,
          reinterpret_cast<__m512bh>(_mm512_loadu_si512(lines[p] + pairs * kLineBytes)));
    }
  }
}

template <int kRows, int kPanels>
inline void SetZero(__m512 (&acc)[kRows][kPanels]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
}

inline __m512 BlockScales(const LinearArgs& args, int64_t panel, int64_t block) {
  return _mm512_loadu_ps(args.block_scales + panel * args.panel_block_scales + block * kPanelRows);
}

// Writes sums to y, scaled and with the bias.
template <int kRows, int kPanels>
inline void StoreSums(const LinearArgs& args, int64_t row, int64_t panel,
                      const __m512 (&sums)[kRows][kPanels]) {
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) {
    const int64_t n = (panel + p) * kPanelRows;
    if (n >= args.outputs) break;
    const int64_t left = args.outputs - n;
    const __mmask16 mask = left >= kPanelRows ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
    const __m512 bias =
        args.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, args.bias + n);
    const __m512 scales = args.row_scales == nullptr
                              ? _mm512_set1_ps(1.0f)
                              : _mm512_maskz_loadu_ps(mask, args.row_scales + n);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512 scaled = _mm512_mul_ps(sums[r][p], scales);
      const __m512 value = args.bias == nullptr ? scaled : _mm512_add_ps(scaled, bias);
      _mm512_mask_storeu_ps(args.y + (row + r) * args.y_stride + n, mask, value);
    }
  }
}

// BF16 weights without block scales.
template <int kRows, int kPanels>
void MultiplyTile(const LinearArgs& args, int64_t row, int64_t panel) {
  const int64_t pairs = args.cols / 2;
  const uint16_t* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride;
  const uint8_t* lines[kPanels];
  for (int p = 0; p < kPanels; ++p)
    lines[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
  __m512 acc[kRows][kPanels];
  SetZero(acc);
  AddPairs(x, args.x_stride, pairs, lines, acc);
  if (args.cols % 2 != 0) AddLast(x, args.x_stride, lines, pairs, acc);
  StoreSums(args, row, panel, acc);
}

// --- Few rows: codes are converted to BF16 in registers --------------------------------------

// Converts F8_E4M3 codes with half the instructions of F8Codes, but more registers.
template <Among kAmong>
struct F8Permutations {
  static constexpr int kVectors = 8, kLines = 2, kScaleVectors = 8;
  static constexpr bool kHasScales = false;
  using Scales = NoScales;
  NoScales ScalesOf(const uint8_t* /*scales*/) const { return {}; }
  bool IsUnusual(const uint8_t* /*scales*/, int64_t /*count*/) const { return false; }

  struct Bytes {
    __m512i lower, upper;
  };
  __attribute__((always_inline)) Bytes Load(const uint8_t* codes, NoScales /*scales*/) const {
    __m512i bytes = LoadVector(codes);
    // Loads only once. GCC 12 would load again for each permutation, because a permutation
    // overwrites its operand.
    asm("" : "+v"(bytes));
    return {permutations.Lower(bytes), permutations.Upper(bytes)};
  }
  // Returns the even codes, or the odd ones: joins the lower and the upper byte of each number.
  __attribute__((always_inline)) __m512i Line(int i, const Bytes& bytes,
                                              NoScales /*scales*/) const {
    if constexpr (kAmong == Among::kFewProducts) {
      const __m512i neighbours = _mm512_broadcast_i32x4(
          _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
      constexpr __mmask64 kEven = 0x5555555555555555;
      if (i == 0) return _mm512_mask_shuffle_epi8(bytes.lower, ~kEven, bytes.upper, neighbours);
      return _mm512_mask_shuffle_epi8(bytes.upper, kEven, bytes.lower, neighbours);
    }
    constexpr int kAAndBOrC = 0xEA;
    if (i == 0) {
      return _mm512_ternarylogic_epi32(bytes.lower, _mm512_set1_epi16(0xFF),
                                       _mm512_slli_epi16(bytes.upper, 8), kAAndBOrC);
    }
    return _mm512_ternarylogic_epi32(bytes.upper, _mm512_set1_epi16(static_cast<short>(0xFF00)),
                                     _mm512_srli_epi16(bytes.lower, 8), kAAndBOrC);
  }

  E4M3Permutations permutations;
};

// Prefetch distance for codes and their scales, in bytes.
constexpr int64_t kBytesAhead = 4096;
struct BytesAhead {
  int64_t codes, scales;
};

// Returns the prefetch distance at a step of a panel. After the panel's end, continues with the
// panel that follows this group.
template <int kPanels>
BytesAhead AheadOf(const LinearArgs& args, int64_t step) {
  const int64_t scales = kBytesAhead / args.code_step_bytes * args.scale_step_bytes;
  if (step * args.code_step_bytes + kBytesAhead < args.panel_bytes) return {kBytesAhead, scales};
  return {kBytesAhead + (kPanels - 1) * args.panel_bytes,
          scales + (kPanels - 1) * args.panel_scale_bytes};
}

// Prepares the scales of kPanels panels, `stride` bytes apart.
template <typename Codes, int kPanels>
__attribute__((always_inline)) inline void ReadScales(Codes& format, const uint8_t* scales,
                                                      int64_t stride,
                                                      typename Codes::Scales (&ready)[kPanels]) {
  if constexpr (requires { format.ScalesOfPanels(scales, stride, ready); }) {
    format.ScalesOfPanels(scales, stride, ready);
  } else {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) ready[p] = format.ScalesOf(scales + p * stride);
  }
}

// Adds steps [begin, end) for some rows, whose inputs begin at x. Panels are interleaved, so that
// consecutive dot products do not depend on each other.
template <typename Codes, int kRows, int kPanels>
__attribute__((always_inline)) inline void AddCodes(const LinearArgs& args, const uint16_t* x,
                                                    int64_t panel, int64_t begin, int64_t end,
                                                    Codes& format, __m512 (&acc)[kRows][kPanels]) {
  const uint8_t* codes =
      static_cast<const uint8_t*>(args.w) + panel * args.panel_bytes + begin * args.code_step_bytes;
  const uint8_t* scales =
      args.scales + panel * args.panel_scale_bytes + begin * args.scale_step_bytes;
  const uint16_t* inputs = x + begin * 2 * kStepPairs;
  for (int64_t step = begin; step < end; ++step) {
    const BytesAhead ahead = AheadOf<kPanels>(args, step);
    for (int group = 0; group < Codes::kVectors; group += Codes::kScaleVectors) {
      typename Codes::Scales ready[kPanels];
      ReadScales(format, scales, args.panel_scale_bytes, ready);
      if constexpr (Codes::kHasScales) {
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) {
          _mm_prefetch(
              reinterpret_cast<const char*>(scales + p * args.panel_scale_bytes + ahead.scales),
              _MM_HINT_T0);
        }
      }
      // Not unrolled, because the instructions of a whole step exceed the micro-op cache.
#pragma GCC unroll 1
      for (int v = 0; v < Codes::kScaleVectors; ++v) {
        // One row: each pair is loaded once for all panels, because load units are the scarcest
        // resource. More rows: one register per row's address. The asm statements hide values from
        // GCC 12, which would otherwise load or compute them again for every pair and spill other
        // values.
        constexpr bool kOneRow = kRows == 1;
        [[maybe_unused]] __m512bh pairs[Codes::kLines];
        [[maybe_unused]] const uint16_t* rows[kRows];
        if constexpr (kOneRow) {
#pragma GCC unroll 4
          for (int i = 0; i < Codes::kLines; ++i) {
            pairs[i] = Broadcast(inputs + 2 * i);
#ifndef __clang__  // Clang's unoptimized code has no free register for it
            asm("" : "+v"(pairs[i]));
#endif
          }
        } else {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            rows[r] = inputs + r * args.x_stride;
            asm("" : "+r"(rows[r]));
          }
        }
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) {
          const uint8_t* from = codes + p * args.panel_bytes;
          // A single row is memory-bound: prefetching to L2 is up to 10 % faster.
          _mm_prefetch(reinterpret_cast<const char*>(from + ahead.codes),
                       kOneRow ? _MM_HINT_T1 : _MM_HINT_T0);
          const auto words = format.Load(from, ready[p]);
#pragma GCC unroll 4
          for (int i = 0; i < Codes::kLines; ++i) {
            const auto line = reinterpret_cast<__m512bh>(format.Line(i, words, ready[p]));
            if constexpr (kOneRow) {
              acc[0][p] = _mm512_dpbf16_ps(acc[0][p], pairs[i], line);
            } else {
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r)
                acc[r][p] = DotOfAll(acc[r][p], line, rows[r] + 2 * i);
            }
          }
        }
        codes += kLineBytes;
        inputs += 2 * Codes::kLines;
      }
      scales += kScaleRows;
    }
  }
}

// Multiplies some rows of inputs. Returns false, with nothing written, if the format's arithmetic
// does not handle all codes or scales.
template <typename Codes, bool kBlocks, int kRows, int kPanels>
bool MultiplyCodes(const LinearArgs& args, int64_t row, int64_t panel) {
  const uint16_t* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride;
  const int64_t steps = args.cols / (2 * kStepPairs);
  Codes format;
  const auto is_unusual = [&] {
    for (int p = 0; p < kPanels; ++p) {
      if (format.IsUnusual(args.scales + (panel + p) * args.panel_scale_bytes,
                           steps * args.scale_step_bytes))
        return true;
    }
    return false;
  };
  __m512 acc[kRows][kPanels];
  SetZero(acc);
  if constexpr (!kBlocks) {
    AddCodes(args, x, panel, 0, steps, format, acc);
    if (is_unusual()) return false;
    StoreSums(args, row, panel, acc);
  } else {
    __m512 totals[kRows][kPanels];
    SetZero(totals);
    int64_t block = 0;
    for (int64_t begin = 0; begin < steps; begin += args.block_steps, ++block) {
      const int64_t end = steps - begin < args.block_steps ? steps : begin + args.block_steps;
      AddCodes(args, x, panel, begin, end, format, acc);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        const __m512 scale = BlockScales(args, panel + p, block);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          totals[r][p] = _mm512_fmadd_ps(acc[r][p], scale, totals[r][p]);
      }
      SetZero(acc);
    }
    if (is_unusual()) return false;
    StoreSums(args, row, panel, totals);
  }
  return true;
}

// --- More rows, or block scales: sums stay in memory between segments -------------------------

constexpr int64_t kSegmentSteps = 4;  // of four panels: 16 KiB

// The unit in which inputs are processed: steps [begin, begin + steps) of a block.
struct Segment {
  int64_t begin, steps, block;
  bool starts_block, ends_block;
};

// A part of the outputs: some rows of a group of panels.
struct SegmentTile {
  const LinearArgs& args;
  int64_t panel;
  int64_t row_begin, rows;
  float* sums;    // [rows][panels][16], of the current chains
  float* totals;  // the sums of the previous blocks, in the same layout

  // Adds the segment's `count` inputs, whose lines begin at lines[], to the sums, in tiles of up to
  // kMaxRows rows. add_pairs<rows>(inputs, sums) must add the whole pairs. At the end of a block
  // with scales, adds the sums times its scales to the totals.
  template <int kMaxRows, int kPanels, typename AddWholePairs>
  void Add(const Segment& segment, int64_t count, const uint8_t* const (&lines)[kPanels],
           const AddWholePairs& add_pairs) {
    const int64_t first = segment.begin * 2 * kStepPairs;
    const bool ends_block = args.block_scales != nullptr && segment.ends_block;
    const uint16_t* x = static_cast<const uint16_t*>(args.x) + row_begin * args.x_stride + first;
    ForEachTile<kMaxRows, kPanels>(
        0, rows, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
          if constexpr (kTilePanels == kPanels) {
            __m512 acc[kRows][kPanels];
            float* from = sums + row * kPanels * kPanelRows;
            SetZero(acc);
            if (!segment.starts_block) {
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
                for (int p = 0; p < kPanels; ++p)
                  acc[r][p] = _mm512_load_ps(from + (r * kPanels + p) * kPanelRows);
              }
            }
            const uint16_t* inputs = x + row * args.x_stride;
            add_pairs.template operator()<kRows>(inputs, acc);
            if (count % 2 != 0) AddLast(inputs, args.x_stride, lines, count / 2, acc);
            float* totals_from = totals + row * kPanels * kPanelRows;
#pragma GCC unroll 8
            for (int p = 0; p < kPanels; ++p) {
              if (ends_block) {
                const __m512 scale = BlockScales(args, panel + p, segment.block);
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                  float* total = totals_from + (r * kPanels + p) * kPanelRows;
                  const __m512 before =
                      segment.block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(total);
                  _mm512_store_ps(total, _mm512_fmadd_ps(acc[r][p], scale, before));
                }
              } else {
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r)
                  _mm512_store_ps(from + (r * kPanels + p) * kPanelRows, acc[r][p]);
              }
            }
          }
        });
  }

  template <int kPanels>
  void Store(const float* from) {
    for (int64_t r = 0; r < rows; ++r) {
      __m512 values[1][kPanels];
      for (int p = 0; p < kPanels; ++p)
        values[0][p] = _mm512_load_ps(from + (r * kPanels + p) * kPanelRows);
      StoreSums(args, row_begin + r, panel, values);
    }
  }
};

// Returns the segment from step `begin` on; after the last step, a segment without steps.
inline Segment SegmentAt(const LinearArgs& args, int64_t all_steps, int64_t begin) {
  const int64_t block_steps = args.block_scales != nullptr ? args.block_steps : all_steps;
  const int64_t block = begin / block_steps;
  const int64_t block_end =
      all_steps - block * block_steps < block_steps ? all_steps : (block + 1) * block_steps;
  const int64_t steps = block_end - begin < kSegmentSteps ? block_end - begin : kSegmentSteps;
  return {begin, steps, block, begin == block * block_steps, begin + steps == block_end};
}

// kAhead: number of panels whose next segment each tile prefetches; a divisor of kPanels.
template <int kPanels, int kAhead>
void MultiplySegmentsFetching(const LinearArgs& args, int64_t row_begin, int64_t rows,
                              int64_t panel) {
  alignas(64) uint8_t expanded[kPanels][kSegmentSteps * kStepBytes];
  alignas(64) float sums[kExpandRows * kPanels * kPanelRows];
  alignas(64) float totals[kExpandRows * kPanels * kPanelRows];
  SegmentTile tile{args, panel, row_begin, rows, sums, totals};
  const int64_t all_steps = (args.cols + 2 * kStepPairs - 1) / (2 * kStepPairs);
  const int64_t step_bytes = args.expand == nullptr ? kStepBytes : args.code_step_bytes;
  Segment segment;
  for (int64_t begin = 0; begin < all_steps; begin += segment.steps) {
    segment = SegmentAt(args, all_steps, begin);
    const uint8_t* lines[kPanels];
    const uint8_t* ahead[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      lines[p] = CodesAt(args, panel + p, begin, step_bytes);
      // After the last segment, prefetch the first segment of the panels that probably come next.
      ahead[p] = begin + segment.steps < all_steps ? lines[p] + segment.steps * step_bytes
                                                   : CodesAt(args, panel + kPanels + p, 0, 0);
      if (args.expand != nullptr) {
        args.expand(lines[p], ScalesAt(args, panel + p, begin), segment.steps, expanded[p]);
        lines[p] = expanded[p];
      }
    }
    const int64_t left = args.cols - begin * 2 * kStepPairs;
    const int64_t count =
        left < segment.steps * 2 * kStepPairs ? left : segment.steps * 2 * kStepPairs;
    // Each of the first tiles prefetches a part of the next segment. Otherwise the memory would be
    // idle while the other tiles read the current segment from the cache.
    int next_ahead = 0;
    tile.Add<kTileRows, kPanels>(
        segment, count, lines,
        [&]<int kRows>(const uint16_t* inputs, __m512(&acc)[kRows][kPanels])
            __attribute__((always_inline)) {
              if (next_ahead + kAhead <= kPanels) {
                AddPairs<kRows, kPanels, kAhead>(inputs, args.x_stride, count / 2, lines, acc,
                                                 ahead + next_ahead, step_bytes / kStepPairs);
                next_ahead += kAhead;
              } else {
                AddPairs(inputs, args.x_stride, count / 2, lines, acc);
              }
            });
  }
  tile.Store<kPanels>(args.block_scales != nullptr ? totals : sums);
}

template <int kPanels>
void MultiplySegments(const LinearArgs& args, int64_t row_begin, int64_t rows, int64_t panel) {
  // Each tile prefetches one panel if there are enough row tiles to prefetch all kPanels panels,
  // else kPanels / 2 panels.
  if constexpr (kPanels > 1) {
    if (rows <= (kPanels - 1) * kTileRows)
      return MultiplySegmentsFetching<kPanels, kPanels / 2>(args, row_begin, rows, panel);
  }
  MultiplySegmentsFetching<kPanels, 1>(args, row_begin, rows, panel);
}

// --- Many rows: codes of the next segment are converted during the products of this one ---------

// So small that there are at least as many tiles as panels: each tile expands one panel.
constexpr int kCodeTileRows = 5;

// Adds pairs. At the same time, expands `vectors` vectors of codes to lines, on execution units
// that the products do not use.
template <typename Codes, int kRows, int kPanels>
__attribute__((always_inline)) inline void AddPairsAndExpand(
    const uint16_t* x, int64_t x_stride, int64_t pairs, const uint8_t* const (&lines)[kPanels],
    __m512 (&acc)[kRows][kPanels], Codes& format, int64_t vectors, const uint8_t* codes,
    const BytesAhead& ahead, const uint8_t* scales, uint8_t* expanded) {
  int64_t pair = 0;
  for (int64_t v = 0; v < vectors; v += Codes::kScaleVectors) {
    const uint8_t* const scales_now = scales + v / Codes::kScaleVectors * kScaleRows;
    const typename Codes::Scales ready = format.ScalesOf(scales_now);
    if constexpr (Codes::kHasScales)
      _mm_prefetch(reinterpret_cast<const char*>(scales_now + ahead.scales), _MM_HINT_T0);
#pragma GCC unroll 1
    for (int i = 0; i < Codes::kScaleVectors; ++i) {
      const __m512i words = format.Load(codes + (v + i) * kLineBytes, ready);
      _mm_prefetch(reinterpret_cast<const char*>(codes + (v + i) * kLineBytes + ahead.codes),
                   _MM_HINT_T1);
#pragma GCC unroll 4
      for (int line = 0; line < Codes::kLines; ++line, ++pair) {
        _mm512_store_si512(expanded + pair * kLineBytes, format.Line(line, words, ready));
        __m512bh weights[kPanels];
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
          weights[p] = reinterpret_cast<__m512bh>(_mm512_load_si512(lines[p] + pair * kLineBytes));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
          for (int p = 0; p < kPanels; ++p)
            acc[r][p] = DotOfAll(acc[r][p], weights[p], x + r * x_stride + 2 * pair);
        }
      }
    }
  }
  const uint8_t* rest[kPanels];
  for (int p = 0; p < kPanels; ++p) rest[p] = lines[p] + pair * kLineBytes;
  AddPairs(x + 2 * pair, x_stride, pairs - pair, rest, acc);
}

// REQUIRES: more than kLongCodeRows rows; whole steps. No segment is longer than the previous one,
// so each segment has enough pairs to expand the next one at the same time.
template <typename Codes, int kPanels>
void MultiplyCodeSegments(const LinearArgs& args, int64_t row_begin, int64_t rows, int64_t panel) {
  // The distances avoid multiples of 4 KiB. At such a multiple, lines that are loaded and stored at
  // the same time would share a set of L1, and the store queue would assume that they have the same
  // address.
  constexpr int64_t kPanelBytes = kSegmentSteps * kStepBytes + 5 * kLineBytes;
  constexpr int64_t kBufferBytes = kWidePanels * kSegmentSteps * kStepBytes + 2048;
  static_assert(kPanels * kPanelBytes <= kBufferBytes);
  alignas(64) uint8_t expanded[2 * kBufferBytes];
  const auto lines_of = [&](int buffer, int p) {
    return expanded + buffer * kBufferBytes + p * kPanelBytes;
  };
  alignas(64) float sums[kExpandRows * kPanels * kPanelRows];
  alignas(64) float totals[kExpandRows * kPanels * kPanelRows];
  SegmentTile tile{args, panel, row_begin, rows, sums, totals};
  const int64_t all_steps = args.cols / (2 * kStepPairs);
  const auto expand = [&](const Segment& segment, int p, uint8_t* to) {
    args.expand(CodesAt(args, panel + p, segment.begin, args.code_step_bytes),
                ScalesAt(args, panel + p, segment.begin), segment.steps, to);
  };
  static_assert((kLongCodeRows + kCodeTileRows) / kCodeTileRows >= kPanels);
  Segment segment = SegmentAt(args, all_steps, 0);
  for (int p = 0; p < kPanels; ++p) expand(segment, p, lines_of(0, p));
  for (int now = 0; segment.steps > 0; now = 1 - now) {
    const Segment next = SegmentAt(args, all_steps, segment.begin + segment.steps);
    const BytesAhead ahead = AheadOf<kPanels>(args, next.begin);
    const uint8_t* lines[kPanels];
    for (int p = 0; p < kPanels; ++p) lines[p] = lines_of(now, p);
    const int64_t pairs = segment.steps * kStepPairs;
    int next_panel = 0;
    tile.Add<kCodeTileRows, kPanels>(
        segment, 2 * pairs, lines,
        [&]<int kRows>(const uint16_t* inputs, __m512(&acc)[kRows][kPanels])
            __attribute__((always_inline)) {
              if (next_panel == kPanels || next.steps == 0) {
                AddPairs(inputs, args.x_stride, pairs, lines, acc);
                return;
              }
              Codes format;
              uint8_t* const to = lines_of(1 - now, next_panel);
              const uint8_t* const scales = ScalesAt(args, panel + next_panel, next.begin);
              AddPairsAndExpand(inputs, args.x_stride, pairs, lines, acc, format,
                                next.steps * Codes::kVectors,
                                CodesAt(args, panel + next_panel, next.begin, args.code_step_bytes),
                                ahead, scales, to);
              if (format.IsUnusual(scales, next.steps * args.scale_step_bytes)) [[unlikely]]
                expand(next, next_panel, to);
              ++next_panel;
            });
    segment = next;
  }
  tile.Store<kPanels>(args.block_scales != nullptr ? totals : sums);
}

// Calls multiply<panels>(row, rows, panel) for at most kExpandRows rows, with four panels or one.
template <typename Multiply>
void ForEachSegmentTile(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
                        const Multiply& multiply) {
  ForEachPanelGroup<kWidePanels>(panel_begin, panel_end, [&]<int kPanels>(int64_t panel) {
    for (int64_t row = row_begin; row < row_end; row += kExpandRows) {
      const int64_t rows = row_end - row < kExpandRows ? row_end - row : kExpandRows;
      multiply.template operator()<kPanels>(row, rows, panel);
    }
  });
}

void MultiplySegmentRange(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  ForEachSegmentTile(row_begin, row_end, panel_begin, panel_end,
                     [&]<int kPanels>(int64_t row, int64_t rows, int64_t panel) {
                       MultiplySegments<kPanels>(args, row, rows, panel);
                     });
}

// --- Choice -----------------------------------------------------------------------------------

template <typename>
constexpr bool kIsNvfp4 = false;
template <Among kAmong>
constexpr bool kIsNvfp4<Nvfp4Codes<kAmong>> = true;
template <Among kAmong>
constexpr bool kIsNvfp4<Nvfp4Permutations<kAmong>> = true;

// Panels of a tile of up to kMaxRows rows. Each dot product waits for the previous one of the same
// sum (6 cycles on Zen 5), so few sums would leave the units idle. Formats with four lines per
// vector of codes need the most products per byte, so one row takes twice as many panels. The
// scales of NVFP4 leave no registers for more sums.
template <typename Codes, int kMaxRows>
constexpr int kPanelsOfFew = kIsNvfp4<Codes> ? (kMaxRows == 1 ? kWidePanels : kFewPanels)
                             : kMaxRows == 1 && Codes::kLines == 4 ? kOneRowPanels
                             : kMaxRows <= kFewestRows             ? kWidePanels
                                                                   : kFewPanels;

// Codes are expanded again for each tile of rows, on execution units that would otherwise be mostly
// idle.
template <typename Codes, bool kBlocks, int kMaxRows>
void MultiplyFew(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end) {
  const auto multiply = [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
    if (MultiplyCodes<Codes, kBlocks, kRows, kPanels>(args, row, panel)) [[likely]]
      return;
    constexpr int kAtOnce = kPanels < kWidePanels ? kPanels : kWidePanels;
    for (int p = 0; p < kPanels; p += kAtOnce)
      MultiplySegments<kAtOnce>(args, row, kRows, panel + p);
  };
  constexpr int kPanels = kPanelsOfFew<Codes, kMaxRows>;
  int64_t wide_end = panel_begin;
  if constexpr (kPanels > kWidePanels) {
    wide_end += (panel_end - panel_begin) / kPanels * kPanels;
    ForEachTile<kMaxRows, kPanels>(row_begin, row_end, panel_begin, wide_end, multiply);
  }
  constexpr int kRest = kPanels < kWidePanels ? kPanels : kWidePanels;
  ForEachTile<kMaxRows, kRest>(row_begin, row_end, wide_end, panel_end, multiply);
}

template <typename Codes>
void MultiplyMore(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                  int64_t panel_end) {
  ForEachSegmentTile(row_begin, row_end, panel_begin, panel_end,
                     [&]<int kPanels>(int64_t row, int64_t rows, int64_t panel) {
                       MultiplyCodeSegments<Codes, kPanels>(args, row, rows, panel);
                     });
}

// Selects the function for up to kFewestRows, kCodeRows or kExpandRows rows.
template <bool kBlocks, int64_t kCodeRows, typename Fewest, typename Few = Fewest,
          typename More = Few>
LinearFunction* FunctionFor(int64_t rows) {
  if (rows == 1) return MultiplyFew<Fewest, kBlocks, 1>;
  if (rows <= kFewestRows) return MultiplyFew<Fewest, kBlocks, kFewestRows>;
  if (rows <= kCodeRows) return MultiplyFew<Few, kBlocks, kFewRows>;
  return MultiplyMore<More>;
}

// Selects the function for formats that may have block scales.
template <bool kBlocks>
LinearFunction* BlockCodeFunction(const LinearArgs& args, int64_t rows) {
  using enum Among;
  if (args.expand == avx512::ExpandF8) {
    return FunctionFor<kBlocks, kLongCodeRows, F8Permutations<kFewProducts>,
                       F8Permutations<kManyProducts>, F8Codes<kManyProducts>>(rows);
  }
  if (args.expand == avx512::ExpandI8) return FunctionFor<kBlocks, kLongCodeRows, I8Codes>(rows);
  if (args.expand != avx512::ExpandInt4) return nullptr;
  return args.scales == nullptr ? FunctionFor<kBlocks, kShortCodeRows, Int4Codes>(rows)
                                : FunctionFor<kBlocks, kShortCodeRows, ZeroPointInt4Codes>(rows);
}

// The function for at most kExpandRows rows of inputs with weights as codes; null if there is none.
LinearFunction* CodeFunction(const LinearArgs& args, int64_t rows) {
  if (rows > kExpandRows || args.cols % (2 * kStepPairs) != 0) return nullptr;
  using enum Among;
  if (args.block_scales != nullptr) return BlockCodeFunction<true>(args, rows);
  if (args.expand == avx512::ExpandNvfp4) {
    return FunctionFor<false, kLongCodeRows, Nvfp4Permutations<kFewProducts>,
                       Nvfp4Permutations<kManyProducts>, Nvfp4Codes<kManyProducts>>(rows);
  }
  if (args.expand == avx512::ExpandMxfp4)
    return FunctionFor<false, kShortCodeRows, Mxfp4Codes<kFewProducts>, Mxfp4Codes<kManyProducts>>(
        rows);
  return BlockCodeFunction<false>(args, rows);
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  const bool is_short = rows > kTileRows && rows <= kExpandRows;
  if (args.expand == nullptr && args.block_scales == nullptr && !is_short) {
    // 32 registers contain 6 x 4 sums, four weights and one input.
    ForEachTile<kTileRows, kWidePanels>(row_begin, row_end, panel_begin, panel_end,
                                        [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
                                          MultiplyTile<kRows, kPanels>(args, row, panel);
                                        });
    return;
  }
  LinearFunction* function = nullptr;
  if (args.expand != nullptr) function = CodeFunction(args, rows);
  if (function == nullptr) function = MultiplySegmentRange;
  function(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_bf16
