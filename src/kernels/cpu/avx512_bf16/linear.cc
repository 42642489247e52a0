// linear with BF16 dot products (vdpbf16ps).
//
// Every output element is one chain of dot-product steps over pairs of inputs in rising order,
// whatever the tile it is in. The instruction rounds each of a pair's two sums to nearest and takes
// subnormal numbers, its inputs and results, for zero.
#include <immintrin.h>

#include "kernels/cpu/avx512_bf16/kernels.h"
#include "kernels/cpu/tiles_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

constexpr int kPanelRows = 16;
constexpr int64_t kLineBytes = 64;  // 16 pairs: one pair of inputs for a panel

inline __m512bh Broadcast(const uint16_t* pair) {
  int bits;
  __builtin_memcpy(&bits, pair, 4);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

// The last pair of an odd number of inputs has its second input missing.
template <int kRows, int kPanels>
inline void MultiplyLast(const uint16_t* x, int64_t x_stride, int64_t pairs,
                         const uint8_t* const (&lines)[kPanels], __m512 (&acc)[kRows][kPanels]) {
  for (int r = 0; r < kRows; ++r) {
    const auto inputs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(x[r * x_stride + 2 * pairs]));
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = _mm512_dpbf16_ps(acc[r][p], inputs,
                                   reinterpret_cast<__m512bh>(_mm512_loadu_si512(lines[p])));
    }
  }
}

constexpr int64_t kStepPairs = 16;
constexpr int64_t kStepBytes = kStepPairs * kLineBytes;
// How far ahead codes and their scales are fetched.
constexpr int64_t kBytesAhead = 4096;

// Expands one step of some panels' codes.
template <int kPanels>
inline void ExpandStep(const LinearArgs& args, int64_t panel, int64_t step,
                       uint8_t (*lines)[kStepBytes]) {
  for (int p = 0; p < kPanels; ++p) {
    const uint8_t* codes = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes +
                           step * args.code_step_bytes;
    const uint8_t* scales =
        args.scales + (panel + p) * args.panel_scale_bytes + step * args.scale_step_bytes;
    args.expand(codes, scales, 1, lines[p]);
    const uint8_t* scales_ahead =
        scales + kBytesAhead / args.code_step_bytes * args.scale_step_bytes;
    _mm_prefetch(reinterpret_cast<const char*>(scales_ahead), _MM_HINT_T0);
    const uint8_t* ahead = codes + kBytesAhead;
    // Past the end of the panel: of the one that follows this group.
    if (step * args.code_step_bytes + kBytesAhead >= args.panel_bytes)
      ahead += (kPanels - 1) * args.panel_bytes;
    for (int64_t i = 0; i < args.code_step_bytes; i += kLineBytes)
      _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
  }
}

template <bool kExpand, int kRows, int kPanels>
void MultiplyTile(const LinearArgs& args, int64_t row, int64_t panel) {
  const int64_t pairs = args.cols / 2;
  const uint16_t* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride;
  const int64_t x_stride = args.x_stride;

  __m512 acc[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  const uint8_t* panels[kPanels];
  // Pairs [begin, end), whose lines begin at panels[].
  const auto multiply = [&](int64_t begin, int64_t end) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      __m512bh weights[kPanels];
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        weights[p] =
            reinterpret_cast<__m512bh>(_mm512_loadu_si512(panels[p] + (i - begin) * kLineBytes));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512bh inputs = Broadcast(x + r * x_stride + 2 * i);
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
          acc[r][p] = _mm512_dpbf16_ps(acc[r][p], inputs, weights[p]);
      }
    }
  };
  // The sums of block `block`, times their scales, go to the totals.
  __m512 totals[kRows][kPanels];
  const auto end_block = [&](int64_t block) {
    for (int p = 0; p < kPanels; ++p) {
      const __m512 scale = _mm512_loadu_ps(
          args.block_scales + (panel + p) * args.panel_block_scales + block * kPanelRows);
      for (int r = 0; r < kRows; ++r) {
        totals[r][p] =
            _mm512_fmadd_ps(acc[r][p], scale, block == 0 ? _mm512_setzero_ps() : totals[r][p]);
        acc[r][p] = _mm512_setzero_ps();
      }
    }
  };
  // A segment's lines lie together: a step that expands, else a block, else everything.
  const bool has_blocks = args.block_scales != nullptr;
  const int64_t all_pairs = (args.cols + 1) / 2;  // with the last of an odd number of inputs
  const int64_t block_pairs = has_blocks ? args.block_steps * kStepPairs : all_pairs;
  const int64_t segment_pairs = kExpand ? kStepPairs : block_pairs;
  alignas(64) uint8_t expanded[kExpand ? kPanels : 1][kStepBytes];
  int64_t block = 0;
  for (int64_t begin = 0; begin < all_pairs; begin += segment_pairs) {
    const int64_t end = all_pairs - begin < segment_pairs ? all_pairs : begin + segment_pairs;
    if constexpr (kExpand) ExpandStep<kPanels>(args, panel, begin / kStepPairs, expanded);
    for (int p = 0; p < kPanels; ++p) {
      panels[p] = kExpand ? expanded[p]
                          : static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes +
                                begin * kLineBytes;
    }
    multiply(begin, end < pairs ? end : pairs);
    if (end > pairs) {
      for (int p = 0; p < kPanels; ++p) panels[p] += (pairs - begin) * kLineBytes;
      MultiplyLast(x, x_stride, pairs, panels, acc);
    }
    if (has_blocks && (end == all_pairs || end == (block + 1) * block_pairs)) end_block(block++);
  }
  const auto& sums = has_blocks ? totals : acc;

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

// 32 registers hold 6 x 4 sums, four weights and one input.
template <bool kExpand>
inline void MultiplyRange(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  ForEachTile<6, 4>(row_begin, row_end, panel_begin, panel_end,
                    [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
                      MultiplyTile<kExpand, kRows, kPanels>(args, row, panel);
                    });
}

}  // namespace

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  if (args.expand == nullptr)
    MultiplyRange<false>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyRange<true>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_bf16
