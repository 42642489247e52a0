// Definitions that the AMX files share. Included only by files compiled for AMX. Everything is in
// an unnamed namespace, so that the linker cannot use functions compiled for AMX in the rest of the
// program.
#pragma once

#include <immintrin.h>

#include "kernels/kernel_table.h"

namespace sluice::kernels::amx {
namespace {

constexpr int kPanelRows = 16;
constexpr int64_t kLineBytes = 64;      // a panel's line: 4 bytes of inputs for each row
constexpr int kStepLines = 16;          // lines of a tile step
constexpr int kStepBytes = 64;          // bytes of inputs of a tile step: 32 of BF16, 64 of INT8
constexpr int kStepPairs = kStepLines;  // BF16 pairs per tile step
constexpr int kStepInputs = 2 * kStepPairs;  // BF16 inputs per tile step
constexpr int kTileRows = 16;
constexpr int kTileBytes = 1024;

// Tiles 0 to 3 contain sums, 4 and 5 activations, 6 and 7 weights.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// GCC does not know that tile instructions read memory. This barrier keeps it from dropping or
// delaying stores that precede them.
inline void StoreBefore(const void* address) {
  asm volatile("" : : "r"(address) : "memory");
}

// Configures the tiles for products with two tiles of activations, of `first_rows` and
// `second_rows` rows.
inline void Configure(int first_rows, int second_rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.row_bytes[tile] = 64;
  config.rows[0] = config.rows[1] = config.rows[4] = static_cast<uint8_t>(first_rows);
  config.rows[2] = config.rows[3] = config.rows[5] = static_cast<uint8_t>(second_rows);
  config.rows[6] = config.rows[7] = kStepLines;
  StoreBefore(&config);
  _tile_loadconfig(&config);
}

// The type of both factors. Tiles have the same number of bytes for each type; sums are F32 or
// 32-bit integers.
enum class InputType { kBf16, kI8 };
template <InputType kType>
constexpr int64_t kTypeBytes = kType == InputType::kBf16 ? 2 : 1;

// Adds the product of tiles a and b to tile c. Use it in functions with a template parameter
// `kType`; the tiles must be literals.
#define SLUICE_AMX_MULTIPLY(c, a, b)           \
  do {                                         \
    if constexpr (kType == InputType::kBf16) { \
      _tile_dpbf16ps(c, a, b);                 \
    } else {                                   \
      _tile_dpbssd(c, a, b);                   \
    }                                          \
  } while (false)

// A core's vector units power down after about 2000 idle cycles, the time of 20 steps or more. The
// next tile store needs these units and then waits 700 cycles (Granite Rapids). Loops of tile steps
// call this function at least every kAwakeSteps steps.
constexpr int64_t kAwakeSteps = 8;
inline void KeepVectorsAwake() {
  __m512 v = _mm512_setzero_ps();
  asm volatile("vfmadd231ps %0, %0, %0" : "+v"(v));
}

inline int64_t StepsOf(int64_t row_bytes) {
  return (row_bytes + kStepBytes - 1) / kStepBytes;
}

// Adds a block's sums, multiplied by the scales of their outputs, to the totals of a tile, for its
// first `rows` rows. `first`: whether there are no totals yet.
inline void FoldBlock(const float* sums, const float* scales, int64_t rows, bool first,
                      float* totals) {
  const __m512 scale = _mm512_loadu_ps(scales);
  for (int64_t r = 0; r < rows; ++r) {
    float* total = totals + r * kPanelRows;
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(total);
    _mm512_store_ps(total, _mm512_fmadd_ps(_mm512_load_ps(sums + r * kPanelRows), scale, before));
  }
}

// Writes the sums of row `row` for the panel whose first output is `n`. `stream`: whether to bypass
// the caches for whole lines.
template <InputType kType>
inline void StoreSum(const LinearArgs& args, int64_t row, const float* sums, int64_t n,
                     bool stream) {
  const int64_t left = args.outputs - n;
  const __mmask16 mask = left >= kPanelRows ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
  __m512 value = _mm512_load_ps(sums);
  if constexpr (kType == InputType::kI8) value = _mm512_cvtepi32_ps(_mm512_castps_si512(value));
  if (args.row_scales != nullptr)
    value = _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, args.row_scales + n));
  if constexpr (kType == InputType::kI8)
    value = _mm512_mul_ps(value, _mm512_set1_ps(args.x_scales[row]));
  if (args.bias != nullptr)
    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, args.bias + n));
  float* y = args.y + row * args.y_stride + n;
  if (stream && mask == 0xFFFF && reinterpret_cast<uintptr_t>(y) % 64 == 0)
    _mm512_stream_ps(y, value);
  else
    _mm512_mask_storeu_ps(y, mask, value);
}

}  // namespace
}  // namespace sluice::kernels::amx
