// linear with instructions that multiply words of two BF16 or four 8-bit inputs: either a word by
// all lanes of a panel's line (a dot product), or pairs of rows (a matrix product). The file that
// includes this defines a class Products:
//   Sums                       a vector of four sums
//   ZeroSums()
//   Dot(sums, inputs, line)    adds to each lane the products of its words
//   Matrix(sums, rows, lines)  each operand holds two rows of two words; sums of row 0 of the first
//                              with rows 0 and 1 of the second, then those of its row 1. Equal to
//                              two steps of Dot, bit for bit.
//   ToFloats(sums, args, row)  before row scales
//   kBytes                     bytes per input
//
// Every output element is one chain of Dot steps over words in ascending order, regardless of its
// tile; an odd number of words is padded with a step of zeros.
#pragma once

#include "kernels/cpu/neon/simd.h"
#include "kernels/cpu/tiles_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

constexpr int kPanelRows = 16;
constexpr int kPanelVectors = kPanelRows / kLanes;
constexpr int64_t kLineBytes = 64;  // a word for each of 16 rows
constexpr int64_t kBytesAhead = 2048;
constexpr int64_t kStepLines = 16;  // number of lines to which a step of codes expands
constexpr int64_t kStepBytes = kStepLines * kLineBytes;

// Loads two words of each of two rows: 16 bytes. Bytes after the end of the rows are zero. `left`:
// bytes left in each row.
inline uint32x4_t RowPair(const uint8_t* first, const uint8_t* second, int64_t left) {
  if (left >= 8) return vreinterpretq_u32_u8(vcombine_u8(vld1_u8(first), vld1_u8(second)));
  uint8_t bytes[16] = {};
  for (int64_t i = 0; i < left; ++i) {
    bytes[i] = first[i];
    bytes[8 + i] = second[i];
  }
  return vreinterpretq_u32_u8(vld1q_u8(bytes));
}

template <typename Products, bool kExpand, int kRows, int kPanels>
class WordTile {
 public:
  WordTile(const LinearArgs& args, int64_t row, int64_t panel)
      : args_(args), row_(row), panel_(panel) {
    for (int p = 0; p < kPanels; ++p)
      panels_[p] = static_cast<const uint8_t*>(args.w) + (panel + p) * args.panel_bytes;
    for (int r = 0; r < 2 * kPairs; ++r) {
      // If the number of rows is odd, the last row is used twice.
      const int64_t from = row + (r < kRows ? r : kRows - 1);
      x_[r] = static_cast<const uint8_t*>(args.x) + from * args.x_stride * Products::kBytes;
    }
  }

  inline __attribute__((always_inline)) void Run() {
    Sums sums[kPairs][kSums];
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kSums; ++v) sums[i][v] = Products::ZeroSums();
    }
    const int64_t row_bytes = args_.cols * Products::kBytes;
    if constexpr (kExpand) {
      alignas(64) uint8_t lines[kPanels][kStepBytes];
      const int64_t steps = (row_bytes + kStepLines * 4 - 1) / (kStepLines * 4);
      for (int64_t step = 0; step < steps; ++step) {
        Expand(step, lines);
        const uint8_t* from[kPanels];
        for (int p = 0; p < kPanels; ++p) from[p] = lines[p];
        const int64_t left = row_bytes - step * kStepLines * 4;
        Multiply(from, step * kStepLines * 4, left < kStepLines * 4 ? left : kStepLines * 4, sums);
      }
    } else {
      Multiply(panels_, 0, row_bytes, sums);
    }
    Finish(sums);
  }

 private:
  using Sums = typename Products::Sums;
  static constexpr int kPairs = (kRows + 1) / 2;
  // Number of vectors of sums of one row, or of a pair of rows.
  static constexpr int kSums = kPanels * kPanelVectors * (kRows == 1 ? 1 : 2);

  void Expand(int64_t step, uint8_t (*lines)[kStepBytes]) const {
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* codes = panels_[p] + step * args_.code_step_bytes;
      const uint8_t* scales = args_.scales == nullptr
                                  ? nullptr
                                  : args_.scales + (panel_ + p) * args_.panel_scale_bytes +
                                        step * args_.scale_step_bytes;
      args_.expand(codes, scales, 1, lines[p]);
      for (int64_t i = 0; i < args_.code_step_bytes; i += kLineBytes)
        __builtin_prefetch(codes + kBytesAhead + i);
    }
  }

  // Adds the products of bytes [begin, begin + count) of the inputs; their lines begin at `lines`.
  inline __attribute__((always_inline)) void Multiply(const uint8_t* const (&lines)[kPanels],
                                                      int64_t begin, int64_t count,
                                                      Sums (&sums)[kPairs][kSums]) const {
    const uint32x4_t zero = vdupq_n_u32(0);
    const int64_t pairs = (count + 7) / 8;  // pairs of lines
    const auto line = [&](int p, int64_t index, int v) __attribute__((always_inline)) {
      return vreinterpretq_u32_u8(vld1q_u8(lines[p] + index * kLineBytes + v * 16));
    };
    const auto add = [&](int64_t i, int64_t left) __attribute__((always_inline)) {
      const bool has_second = left > 4;
      uint32x4_t inputs[kPairs];
#pragma GCC unroll 8
      for (int r = 0; r < kPairs; ++r)
        inputs[r] = RowPair(x_[2 * r] + begin + 8 * i, x_[2 * r + 1] + begin + 8 * i, left);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
        for (int v = 0; v < kPanelVectors; ++v) {
          const uint32x4_t first = line(p, 2 * i, v);
          const uint32x4_t second = has_second ? line(p, 2 * i + 1, v) : zero;
          const int s = p * kPanelVectors + v;
          if constexpr (kRows == 1) {
            sums[0][s] = Products::Dot(sums[0][s], vdupq_laneq_u32(inputs[0], 0), first);
            sums[0][s] = Products::Dot(sums[0][s], vdupq_laneq_u32(inputs[0], 1), second);
          } else {
            const uint32x4_t low = vzip1q_u32(first, second);
            const uint32x4_t high = vzip2q_u32(first, second);
#pragma GCC unroll 8
            for (int r = 0; r < kPairs; ++r) {
              sums[r][2 * s] = Products::Matrix(sums[r][2 * s], inputs[r], low);
              sums[r][2 * s + 1] = Products::Matrix(sums[r][2 * s + 1], inputs[r], high);
            }
          }
        }
      }
    };
    const int64_t whole = count / 8;
    for (int64_t i = 0; i < whole; ++i) {
      add(i, 8);
      if constexpr (!kExpand) {
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
          __builtin_prefetch(lines[p] + 2 * i * kLineBytes + kBytesAhead);
      }
    }
    if (whole < pairs) add(whole, count - 8 * whole);
  }

  inline __attribute__((always_inline)) void Finish(const Sums (&sums)[kPairs][kSums]) const {
#pragma GCC unroll 8
    for (int v = 0; v < kPanels * kPanelVectors; ++v) {
      const int64_t n = panel_ * kPanelRows + v * kLanes;
      if (n >= args_.outputs) break;
      const Mask mask = FirstLanes(args_.outputs - n);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        Sums sum;
        if constexpr (kRows == 1) {
          sum = sums[0][v];
        } else {
          const auto low = vreinterpretq_u64_u32(Bits(sums[r / 2][2 * v]));
          const auto high = vreinterpretq_u64_u32(Bits(sums[r / 2][2 * v + 1]));
          const uint64x2_t both = r % 2 == 0 ? vzip1q_u64(low, high) : vzip2q_u64(low, high);
          __builtin_memcpy(&sum, &both, 16);
        }
        Floats value = Products::ToFloats(sum, args_, row_ + r, n, mask);
        if (args_.bias != nullptr) value = Add(value, Load(args_.bias + n, mask));
        Store(args_.y + (row_ + r) * args_.y_stride + n, value, mask);
      }
    }
  }

  static uint32x4_t Bits(Sums sums) {
    uint32x4_t bits;
    __builtin_memcpy(&bits, &sums, 16);
    return bits;
  }

  const LinearArgs& args_;
  const int64_t row_;
  const int64_t panel_;
  const uint8_t* panels_[kPanels];
  const uint8_t* x_[2 * kPairs];
};

template <typename Products, bool kExpand, int kMaxRows, int kWidePanels>
inline void MultiplyWordTiles(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                              int64_t panel_begin, int64_t panel_end) {
  ForEachTile<kMaxRows, kWidePanels>(
      row_begin, row_end, panel_begin, panel_end,
      [&]<int kRows, int kPanels>(int64_t row, int64_t panel) {
        WordTile<Products, kExpand, kRows, kPanels>(args, row, panel).Run();
      });
}

// 32 registers hold the sums of one row by four panels, two by two, or six by one, along with the
// inputs and two vectors of weights.
template <typename Products, bool kExpand>
inline void MultiplyWords(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  if (rows == 1)
    MultiplyWordTiles<Products, kExpand, 1, 4>(args, row_begin, row_end, panel_begin, panel_end);
  else if (rows == 2)
    MultiplyWordTiles<Products, kExpand, 2, 2>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyWordTiles<Products, kExpand, 6, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace
}  // namespace sluice::kernels
