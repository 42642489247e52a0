// linear with BF16 dot products (vdpbf16ps).
//
// Every output element is one chain of dot-product steps over pairs of inputs in rising order,
// whatever the tile it is in. The instruction rounds each of a pair's two sums to nearest and takes
// subnormal numbers, its inputs and results, for zero. Where blocks of inputs have scales, each
// block is a chain of its own, and their sums times the scales are another.
//
// Narrow codes become BF16 in registers for few rows, segment by segment in L1 for some, and for
// many rows before the product (linear_unit.cc). For some rows BF16 is multiplied segment by
// segment, too, so that the next one comes from memory meanwhile.
#include <immintrin.h>

#include "kernels/cpu/avx512/codes_inl.h"
#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512_bf16/dot_inl.h"
#include "kernels/cpu/avx512_bf16/kernels.h"
#include "kernels/cpu/tiles_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

constexpr int kPanelRows = 16;
constexpr int kTileRows = 6;
constexpr int kWidePanels = 4;
// Rows and panels whose sums stay in registers beside what codes are expanded with, and how many
// rows are faster so.
constexpr int kFewRows = 8;
constexpr int kFewPanels = 2;
constexpr int64_t kCodeRows = 24;
constexpr int64_t kLineBytes = 64;  // 16 pairs: one pair of inputs for a panel
constexpr int64_t kStepPairs = 16;
constexpr int64_t kStepBytes = kStepPairs * kLineBytes;

// Adds the products of whole pairs of inputs, whose lines begin at lines[]. Meanwhile ahead_bytes
// of each ahead[] are fetched a pair.
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

// The last pair of an odd number of inputs has its second input missing.
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

// Writes sums, scaled and with the bias, to y.
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

// --- Few rows: codes to BF16 in registers ------------------------------------------------------

// How far ahead codes and their scales are fetched.
constexpr int64_t kBytesAhead = 4096;

// Adds steps [begin, end) of some rows, whose inputs begin at x. The panels are taken together, so
// that neighbouring dot products do not wait for each other.
template <typename Codes, int kRows, int kPanels>
__attribute__((always_inline)) inline void AddCodes(const LinearArgs& args, const uint16_t* x,
                                                    int64_t panel, int64_t begin, int64_t end,
                                                    Codes& format, __m512 (&acc)[kRows][kPanels]) {
  const uint8_t* codes =
      static_cast<const uint8_t*>(args.w) + panel * args.panel_bytes + begin * args.code_step_bytes;
  const uint8_t* scales =
      args.scales + panel * args.panel_scale_bytes + begin * args.scale_step_bytes;
  const uint16_t* inputs = x + begin * 2 * kStepPairs;
  const int64_t scale_bytes_ahead = kBytesAhead / args.code_step_bytes * args.scale_step_bytes;
  for (int64_t step = begin; step < end; ++step) {
    // Past the end of the panel: of the one that follows this group.
    const bool past = step * args.code_step_bytes + kBytesAhead >= args.panel_bytes;
    const int64_t bytes_ahead = kBytesAhead + (past ? (kPanels - 1) * args.panel_bytes : 0);
    for (int group = 0; group < Codes::kVectors; group += Codes::kScaleVectors) {
      typename Codes::Scales ready[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const uint8_t* from = scales + p * args.panel_scale_bytes;
        ready[p] = format.ScalesOf(from);
        if constexpr (Codes::kHasScales)
          _mm_prefetch(reinterpret_cast<const char*>(from + scale_bytes_ahead), _MM_HINT_T0);
      }
      // Not unrolled: the instructions of a whole step outgrow the cache of decoded ones.
#pragma GCC unroll 1
      for (int v = 0; v < Codes::kScaleVectors; ++v) {
        // A register a row: what is hidden here GCC 12 would work out, and keep, for every pair.
        const uint16_t* rows[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          rows[r] = inputs + r * args.x_stride;
          asm("" : "+r"(rows[r]));
        }
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          const uint8_t* from = codes + p * args.panel_bytes;
          _mm_prefetch(reinterpret_cast<const char*>(from + bytes_ahead), _MM_HINT_T0);
          format.Expand(
              from, ready[p], [&](int i, __m512i line) __attribute__((always_inline)) {
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                  acc[r][p] =
                      DotOfAll(acc[r][p], reinterpret_cast<__m512bh>(line), rows[r] + 2 * i);
                }
              });
        }
        codes += kLineBytes;
        inputs += 2 * Codes::kLines;
      }
      scales += kScaleRows;
    }
  }
}

// Some rows of inputs. Returns false, with nothing written, where the format's arithmetic does not
// treat all codes.
template <typename Codes, bool kBlocks, int kRows, int kPanels>
bool MultiplyCodes(const LinearArgs& args, int64_t row, int64_t panel) {
  const uint16_t* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride;
  const int64_t steps = args.cols / (2 * kStepPairs);
  Codes format;
  __m512 acc[kRows][kPanels];
  SetZero(acc);
  if constexpr (!kBlocks) {
    AddCodes(args, x, panel, 0, steps, format, acc);
    if (format.IsUnusual()) return false;
    StoreSums(args, row, panel, acc);
  } else {
    __m512 totals[kRows][kPanels];
    SetZero(totals);
    int64_t block = 0;
    for (int64_t begin = 0; begin < steps; begin += args.block_steps, ++block) {
      const int64_t end = steps - begin < args.block_steps ? steps : begin + args.block_steps;
      AddCodes(args, x, panel, begin, end, format, acc);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512 scale = BlockScales(args, panel + p, block);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          totals[r][p] = _mm512_fmadd_ps(acc[r][p], scale, totals[r][p]);
      }
      SetZero(acc);
    }
    if (format.IsUnusual()) return false;
    StoreSums(args, row, panel, totals);
  }
  return true;
}

// --- Some rows, and blocks: sums wait in memory between segments --------------------------

constexpr int64_t kSegmentSteps = 4;  // of four panels: 16 KiB

// A part of the outputs: some rows of a group of panels.
struct SegmentTile {
  const LinearArgs& args;
  int64_t panel;
  int64_t row_begin, rows;
  float* sums;    // [rows][panels][16] of the present chains
  float* totals;  // the same of the blocks before

  // Adds inputs [first, first + count), whose lines begin at lines[], to the sums, which begin
  // with them where `start` is set. What the next segment reads, ahead_bytes a pair from ahead[]
  // on, is fetched meanwhile, or the memory would be idle while the lines are taken once more.
  template <int kPanels>
  void Add(int64_t first, int64_t count, const uint8_t* const (&lines)[kPanels], bool start,
           const uint8_t* const (&ahead)[kPanels], int64_t ahead_bytes) {
    const uint16_t* x = static_cast<const uint16_t*>(args.x) + row_begin * args.x_stride + first;
    int next_ahead = ahead_bytes != 0 ? 0 : kPanels;
    ForEachTile<kTileRows, kPanels>(
        0, rows, 0, kPanels, [&]<int kRows, int kTilePanels>(int64_t row, int64_t) {
          if constexpr (kTilePanels == kPanels) {
            __m512 acc[kRows][kPanels];
            float* from = sums + row * kPanels * kPanelRows;
            SetZero(acc);
            if (!start) {
#pragma GCC unroll 8
              for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
                for (int p = 0; p < kPanels; ++p)
                  acc[r][p] = _mm512_load_ps(from + (r * kPanels + p) * kPanelRows);
              }
            }
            const uint16_t* inputs = x + row * args.x_stride;
            constexpr int kAhead = (kPanels + 1) / 2;
            if (next_ahead + kAhead <= kPanels) {
              AddPairs<kRows, kPanels, kAhead>(inputs, args.x_stride, count / 2, lines, acc,
                                               ahead + next_ahead, ahead_bytes);
              next_ahead += kAhead;
            } else {
              AddPairs(inputs, args.x_stride, count / 2, lines, acc);
            }
            if (count % 2 != 0)
              AddLast(x + row * args.x_stride, args.x_stride, lines, count / 2, acc);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
              for (int p = 0; p < kPanels; ++p)
                _mm512_store_ps(from + (r * kPanels + p) * kPanelRows, acc[r][p]);
            }
          }
        });
  }

  template <int kPanels>
  void EndBlock(int64_t block) {
    for (int p = 0; p < kPanels; ++p) {
      const __m512 scale = BlockScales(args, panel + p, block);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = (r * kPanels + p) * kPanelRows;
        const __m512 before = block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(totals + at);
        _mm512_store_ps(totals + at, _mm512_fmadd_ps(_mm512_load_ps(sums + at), scale, before));
      }
    }
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

template <int kPanels>
void MultiplySegments(const LinearArgs& args, int64_t row_begin, int64_t rows, int64_t panel) {
  alignas(64) uint8_t expanded[kPanels][kSegmentSteps * kStepBytes];
  alignas(64) float sums[kExpandRows * kPanels * kPanelRows];
  alignas(64) float totals[kExpandRows * kPanels * kPanelRows];
  SegmentTile tile{args, panel, row_begin, rows, sums, totals};
  const bool has_blocks = args.block_scales != nullptr;
  const int64_t all_steps = (args.cols + 2 * kStepPairs - 1) / (2 * kStepPairs);
  const int64_t step_bytes = args.expand == nullptr ? kStepBytes : args.code_step_bytes;
  const int64_t block_steps = has_blocks ? args.block_steps : all_steps;
  int64_t block = 0;
  for (int64_t begin = 0; begin < all_steps; block += 1) {
    const int64_t block_end = all_steps - begin < block_steps ? all_steps : begin + block_steps;
    for (int64_t step = begin; step < block_end; step += kSegmentSteps) {
      const int64_t steps = block_end - step < kSegmentSteps ? block_end - step : kSegmentSteps;
      const uint8_t* lines[kPanels];
      const uint8_t* ahead[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        const uint8_t* from = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes +
                              step * step_bytes;
        ahead[p] = from + kSegmentSteps * step_bytes;
        lines[p] = from;
        if (args.expand != nullptr) {
          lines[p] = expanded[p];
          args.expand(from,
                      args.scales == nullptr ? nullptr
                                             : args.scales + (panel + p) * args.panel_scale_bytes +
                                                   step * args.scale_step_bytes,
                      steps, expanded[p]);
        }
      }
      const int64_t first = step * 2 * kStepPairs;
      const int64_t left = args.cols - first;
      const int64_t count = left < steps * 2 * kStepPairs ? left : steps * 2 * kStepPairs;
      const bool is_last = step + kSegmentSteps >= all_steps;
      tile.Add(first, count, lines, step == begin, ahead, is_last ? 0 : step_bytes / kStepPairs);
    }
    if (has_blocks) tile.EndBlock<kPanels>(block);
    begin = block_end;
  }
  tile.Store<kPanels>(has_blocks ? totals : sums);
}

void MultiplySegmentRange(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  for (int64_t panel = panel_begin; panel < panel_end;) {
    const bool wide = panel_end - panel >= kWidePanels;
    for (int64_t row = row_begin; row < row_end; row += kExpandRows) {
      const int64_t rows = row_end - row < kExpandRows ? row_end - row : kExpandRows;
      if (wide)
        MultiplySegments<kWidePanels>(args, row, rows, panel);
      else
        MultiplySegments<1>(args, row, rows, panel);
    }
    panel += wide ? kWidePanels : 1;
  }
}

// --- Choice -----------------------------------------------------------------------------------

// Up to eight rows by two panels, or one by four. For each eight rows codes are expanded once more,
// which units of the CPU do that have little else to do meanwhile.
template <typename Codes, bool kBlocks>
void MultiplyFew(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end) {
  const auto multiply = [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
    if (!MultiplyCodes<Codes, kBlocks, kRows, kPanels>(args, row, panel)) [[unlikely]]
      MultiplySegments<kPanels>(args, row, kRows, panel);
  };
  if (row_end - row_begin == 1)
    ForEachTile<1, kWidePanels>(row_begin, row_end, panel_begin, panel_end, multiply);
  else
    ForEachTile<kFewRows, kFewPanels>(row_begin, row_end, panel_begin, panel_end, multiply);
}

// The function for few rows of inputs and the weights' codes, or null where there is none.
LinearFunction* FewFunction(const LinearArgs& args, int64_t rows) {
  if (rows > kCodeRows || args.cols % (2 * kStepPairs) != 0) return nullptr;
  const bool blocks = args.block_scales != nullptr;
  if (args.expand == avx512::ExpandI8) return MultiplyFew<I8Codes, false>;
  if (args.expand == avx512::ExpandF8)
    return blocks ? MultiplyFew<F8Codes, true> : MultiplyFew<F8Codes, false>;
  if (args.expand == avx512::ExpandNvfp4) return MultiplyFew<Nvfp4Codes, false>;
  if (args.expand == avx512::ExpandMxfp4) return MultiplyFew<Mxfp4Codes, false>;
  if (args.expand != avx512::ExpandInt4) return nullptr;
  if (args.scales == nullptr)
    return blocks ? MultiplyFew<Int4Codes, true> : MultiplyFew<Int4Codes, false>;
  return blocks ? MultiplyFew<ZeroPointInt4Codes, true> : MultiplyFew<ZeroPointInt4Codes, false>;
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  const bool is_short = rows > kTileRows && rows <= kExpandRows;
  if (args.expand == nullptr && args.block_scales == nullptr && !is_short) {
    // 32 registers hold 6 x 4 sums, four weights and one input.
    ForEachTile<kTileRows, kWidePanels>(row_begin, row_end, panel_begin, panel_end,
                                        [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
                                          MultiplyTile<kRows, kPanels>(args, row, panel);
                                        });
    return;
  }
  LinearFunction* function = nullptr;
  if (args.expand != nullptr) function = FewFunction(args, rows);
  if (function == nullptr) function = MultiplySegmentRange;
  function(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_bf16
