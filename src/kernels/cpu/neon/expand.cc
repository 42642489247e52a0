// Expands codes of narrow formats to lines of BF16 pairs; panel_layout.h defines the order of the
// codes.
//
// All values are exact in BF16, so the BF16 number is the upper half of the F32, without rounding.
// A vector holds the words of 4 rows: a quarter of a panel's line.
#include "kernels/cpu/neon/simd.h"

#include "kernels/cpu/neon/kernels.h"

namespace sluice::kernels::neon {
namespace {

constexpr int64_t kStepBytes8 = 512;  // bytes of 8-bit codes per step
constexpr int64_t kStepBytes4 = 256;  // bytes of 4-bit codes per step
constexpr int64_t kLineBytes = 64;
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kPanelRows = 16;

inline uint32x4_t LoadCodes(const uint8_t* p) {
  return vreinterpretq_u32_u8(vld1q_u8(p));
}
inline void StoreLine(uint8_t* p, uint16x8_t pairs) {
  vst1q_u8(p, vreinterpretq_u8_u16(pairs));
}
// Stores pairs (first, second) of F32 numbers (exact in BF16) as pairs of BF16.
inline void StorePairs(uint8_t* p, Floats first, Floats second) {
  StoreLine(p, vtrn2q_u16(vreinterpretq_u16_f32(first), vreinterpretq_u16_f32(second)));
}

// Zero-extends four bytes to 32-bit lanes.
inline uint32x4_t Bytes(const uint8_t* p) {
  uint32_t bytes;
  __builtin_memcpy(&bytes, p, 4);
  const uint16x8_t halves = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
  return vmovl_u16(vget_low_u16(halves));
}

// Converts E4M3 codes in the lowest bytes of the lanes to F32, through BF16.
inline Floats FloatsOfE4M3(uint32x4_t codes) {
  const uint16x8_t bf16 = Bf16OfE4M3(vreinterpretq_u16_u32(codes));
  return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(bf16), 16));
}

inline Floats FloatsOfE8M0(uint32x4_t codes) {
  uint32x4_t bits = vshlq_n_u32(codes, 23);
  bits = vbslq_u32(vceqzq_u32(codes), vdupq_n_u32(0x00400000), bits);
  bits = vbslq_u32(vceqq_u32(codes, vdupq_n_u32(0xFF)), vdupq_n_u32(0x7FC00000), bits);
  return vreinterpretq_f32_u32(bits);
}

// Returns two tables: the highest bytes of the E2M1 numbers as F32, and the second highest bytes.
inline uint8x16x2_t TableOfE2M1() {
  const uint8x16_t first = {0,    0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                            0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
  const uint8x16_t second = {0, 0, 0x80, 0xC0, 0, 0x40, 0x80, 0xC0,
                             0, 0, 0x80, 0xC0, 0, 0x40, 0x80, 0xC0};
  return {{first, second}};
}

// Returns the code at nibble `kPlace` of each lane.
template <int kPlace>
inline uint32x4_t CodesAt(uint32x4_t words) {
  if constexpr (kPlace == 0)
    return vandq_u32(words, vdupq_n_u32(15));
  else
    return vandq_u32(vshrq_n_u32(words, 4 * kPlace), vdupq_n_u32(15));
}

// Stores four lines; line i holds the pairs (value<i>(), value<i + 4>()).
template <typename Value>
inline void StoreWords4(const Value& value, uint8_t* lines) {
  StorePairs(lines, value.template operator()<0>(), value.template operator()<4>());
  StorePairs(lines + kLineBytes, value.template operator()<1>(), value.template operator()<5>());
  StorePairs(lines + 2 * kLineBytes, value.template operator()<2>(),
             value.template operator()<6>());
  StorePairs(lines + 3 * kLineBytes, value.template operator()<3>(),
             value.template operator()<7>());
}

// Expands 4 words of E2M1 codes, times the scales of their rows, to a quarter of four lines.
inline void ExpandWords4(uint32x4_t words, uint8x16x2_t table, Floats scales, uint8_t* lines) {
  const auto value = [&]<int kPlace>() __attribute__((always_inline)) {
    // Table indices per lane, from the highest byte: the code, the code + 16, and two indices that
    // are out of range, which give zero.
    const uint32x4_t places =
        vmlaq_n_u32(vdupq_n_u32(0x0010FFFF), CodesAt<kPlace>(words), 0x01010000);
    const uint8x16_t number = vqtbl2q_u8(table, vreinterpretq_u8_u32(places));
    return Mul(vreinterpretq_f32_u8(number), scales);
  };
  StoreWords4(value, lines);
}

// Returns the address where the expanded lines of the codes at byte `i` of the panel begin. Each
// line of codes becomes `expanded` lines.
inline uint8_t* LinesOf(uint8_t* lines, int64_t i, int64_t expanded) {
  return lines + i / kLineBytes * expanded * kLineBytes + i % kLineBytes;
}

}  // namespace

void ExpandI8(const uint8_t* codes, const uint8_t* /*scales*/, int64_t steps, uint8_t* lines) {
  const auto value = [](int32x4_t in_top_byte) __attribute__((always_inline)) {
    return vcvtq_f32_s32(vshrq_n_s32(in_top_byte, 24));
  };
  for (int64_t i = 0; i < steps * kStepBytes8; i += kVectorBytes) {
    const int32x4_t words = LoadWords(codes + i);
    uint8_t* to = LinesOf(lines, i, 2);
    StorePairs(to, value(vshlq_n_s32(words, 24)), value(vshlq_n_s32(words, 16)));
    StorePairs(to + kLineBytes, value(vshlq_n_s32(words, 8)), value(words));
  }
}

void ExpandF8(const uint8_t* codes, const uint8_t* /*scales*/, int64_t steps, uint8_t* lines) {
  for (int64_t i = 0; i < steps * kStepBytes8; i += kVectorBytes) {
    const uint16x8_t words = vreinterpretq_u16_u32(LoadCodes(codes + i));
    uint8_t* to = LinesOf(lines, i, 2);
    StoreLine(to, Bf16OfE4M3(words));
    StoreLine(to + kLineBytes, Bf16OfE4M3(vshrq_n_u16(words, 8)));
  }
}

void ExpandNvfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  const uint8x16x2_t table = TableOfE2M1();
  for (int64_t i = 0; i < steps * kStepBytes4; i += kVectorBytes) {
    // Two lines of codes per group of 16.
    const int64_t line = i / kLineBytes, row = i % kLineBytes / 4;
    const Floats group_scales = FloatsOfE4M3(Bytes(scales + line / 2 * kPanelRows + row));
    ExpandWords4(LoadCodes(codes + i), table, group_scales, LinesOf(lines, i, 4));
  }
}

void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  const uint8x16x2_t table = TableOfE2M1();
  for (int64_t i = 0; i < steps * kStepBytes4; i += kVectorBytes) {
    // Four lines of codes per group of 32.
    const int64_t line = i / kLineBytes, row = i % kLineBytes / 4;
    const Floats group_scales = FloatsOfE8M0(Bytes(scales + line / 4 * kPanelRows + row));
    ExpandWords4(LoadCodes(codes + i), table, group_scales, LinesOf(lines, i, 4));
  }
}

void ExpandInt4(const uint8_t* codes, const uint8_t* zero_points, int64_t steps, uint8_t* lines) {
  constexpr uint32_t kZero = 8;  // the zero point of formats that do not store one
  for (int64_t i = 0; i < steps * kStepBytes4; i += kVectorBytes) {
    // Four lines of codes per step.
    const int64_t line = i / kLineBytes, row = i % kLineBytes / 4;
    const uint32x4_t zeros = zero_points == nullptr
                                 ? vdupq_n_u32(kZero)
                                 : Bytes(zero_points + line / 4 * kPanelRows + row);
    const uint32x4_t words = LoadCodes(codes + i);
    const auto value = [&]<int kPlace>() __attribute__((always_inline)) {
      return vcvtq_f32_s32(vreinterpretq_s32_u32(vsubq_u32(CodesAt<kPlace>(words), zeros)));
    };
    StoreWords4(value, LinesOf(lines, i, 4));
  }
}

}  // namespace sluice::kernels::neon
