// linear with BF16 dot products (vdpbf16ps).
//
// Every output element is one chain of dot-product steps over pairs of inputs in rising order,
// whatever the tile it is in. The instruction rounds each of a pair's two sums to nearest and takes
// subnormal numbers, its inputs and results, for zero.
#include <immintrin.h>

#include "kernels/cpu/avx512_bf16/kernels.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

constexpr int kPanelRows = 16;
constexpr int64_t kLineBytes = 64;  // 16 pairs: one pair of inputs for a panel

inline __m512bh Broadcast(const uint16_t* pair) {
  int bits;
  __builtin_memcpy(&bits, pair, 4);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

template <int kRows, int kPanels>
void MultiplyTile(const LinearArgs& args, int64_t row, int64_t panel) {
  const int64_t pairs = args.cols / 2;
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p)
    panels[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
  const uint16_t* x = static_cast<const uint16_t*>(args.x) + row * args.x_stride;
  const int64_t x_stride = args.x_stride;

  __m512 acc[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < pairs; ++i) {
    __m512bh weights[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      weights[p] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panels[p] + i * kLineBytes));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512bh inputs = Broadcast(x + r * x_stride + 2 * i);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], inputs, weights[p]);
    }
  }
  if (args.cols % 2 != 0) {  // The last pair has its second input missing.
    for (int r = 0; r < kRows; ++r) {
      const auto inputs =
          reinterpret_cast<__m512bh>(_mm512_set1_epi32(x[r * x_stride + 2 * pairs]));
      for (int p = 0; p < kPanels; ++p) {
        const auto weights =
            reinterpret_cast<__m512bh>(_mm512_loadu_si512(panels[p] + pairs * kLineBytes));
        acc[r][p] = _mm512_dpbf16_ps(acc[r][p], inputs, weights);
      }
    }
  }

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
      const __m512 scaled = _mm512_mul_ps(acc[r][p], scales);
      const __m512 value = args.bias == nullptr ? scaled : _mm512_add_ps(scaled, bias);
      _mm512_mask_storeu_ps(args.y + (row + r) * args.y_stride + n, mask, value);
    }
  }
}

// A tile of 1 to kRows rows.
template <int kRows, int kPanels>
inline void MultiplyRows(const LinearArgs& args, int64_t row, int64_t rows, int64_t panel) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return MultiplyRows<kRows - 1, kPanels>(args, row, rows, panel);
  }
  MultiplyTile<kRows, kPanels>(args, row, panel);
}

}  // namespace

// 32 registers hold 6 x 4 sums, four weights and one input. Rows are cut into equal tiles of at
// most 6.
void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  constexpr int kMaxRows = 6;
  constexpr int kWidePanels = 4;
  const int64_t rows = row_end - row_begin;
  const int64_t tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t panel = panel_begin; panel < panel_end;) {
    const bool wide = panel_end - panel >= kWidePanels;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = row_begin + rows * tile / tiles;
      const int64_t count = row_begin + rows * (tile + 1) / tiles - begin;
      if (wide)
        MultiplyRows<kMaxRows, kWidePanels>(args, begin, count, panel);
      else
        MultiplyRows<kMaxRows, 1>(args, begin, count, panel);
    }
    panel += wide ? kWidePanels : 1;
  }
}

}  // namespace sluice::kernels::avx512_bf16
