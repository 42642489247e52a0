#include "kernels/quantize_rows.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "kernels/quantize_int8_inl.h"
#include "kernels/vector_kernel.h"
#include "tensor/bfloat16.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

// The loops below have no branches or calls, so that the compiler vectorizes them. Every operation
// is exact or correctly rounded, so the results do not depend on how the loops are vectorized.
namespace sluice::kernels {
namespace {

float Load(float value) {
  return value;
}
float Load(BFloat16 value) {
  return ToFloat(value);
}

uint32_t Bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
float FromBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
constexpr uint32_t kSignBit = 0x80000000u;

// As integers, the bits of magnitudes have the same order as the magnitudes, so they are compared
// as integers.
template <typename T>
float AbsMax(const T* x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<int32_t>(Bits(Load(x[i])) & ~kSignBit));
  }
  return std::bit_cast<float>(largest);
}

// Returns the nearest E4M3 number, ties to even, saturated at +-448. NaN stays NaN.
inline float RoundE4M3(float value) {
  return ToFloat(ToFloat8E4M3(value));
}

// Returns the nearest E2M1 number (0, .5, 1, 1.5, 2, 3, 4, 6), ties to the even code, saturated at
// +-6. NaN becomes 6.
inline float RoundE2M1(float value) {
  const uint32_t sign = Bits(value) & kSignBit;
  const float magnitude = FromBits(Bits(value) & ~kSignBit);
  const float clamped = magnitude < kFloat4Max ? magnitude : kFloat4Max;
  // Adding `magic` rounds to E2M1's step for this magnitude: .5 below 2, 1 below 4, then 2.
  const float magic = clamped < 2.0f ? 0x1.8p22f : (clamped < 4.0f ? 0x1.8p23f : 0x1.8p24f);
  return FromBits(Bits((clamped + magic) - magic) | sign);
}

// Returns the scale that maps `largest` to the format's maximum `top`. Returns 1 if the scale would
// be zero, as for a row of zeros or of numbers that are too small.
float ScaleOf(float largest, float top) {
  const float scale = largest / top;
  return scale == 0 ? 1.0f : scale;
}

template <typename T>
void RoundFp8(const T* x, int64_t count, float scale, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = RoundE4M3(Load(x[i]) / scale) * scale;
}

// Rounds to integers in [-128, 127], ties to even, with a zero point. NaN becomes -128.
template <typename T>
void RoundInt8(const T* x, int64_t count, float scale, int zero_point, float* out) {
  // Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even.
  constexpr float kMagic = 0x1.8p23f;
  const auto zero = static_cast<float>(zero_point);
  for (int64_t i = 0; i < count; ++i) {
    const float value = Load(x[i]) / scale + zero;
    const float low = value >= -128.0f ? value : -128.0f;
    const float clamped = low <= 127.0f ? low : 127.0f;
    out[i] = (((clamped + kMagic) - kMagic) - zero) * scale;
  }
}

// Rounds one group of kNvfp4. The group's scale is itself E4M3, in units of the global scale.
template <typename T>
void RoundNvfp4Group(const T* x, int64_t count, float global_scale, float* out) {
  const float scale = RoundE4M3(AbsMax(x, count) / kFloat4Max / global_scale) * global_scale;
  if (scale == 0) {
    std::fill_n(out, count, 0.0f);
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = RoundE2M1(Load(x[i]) / scale) * scale;
}

template <typename T>
void RoundMxfp4Group(const T* x, int64_t count, float* out) {
  const float scale = PowerOfTwoToFloat(PowerOfTwoScale(AbsMax(x, count)));
  for (int64_t i = 0; i < count; ++i) out[i] = RoundE2M1(Load(x[i]) / scale) * scale;
}

template <typename T>
void RoundRow(const ActivationFormat& format, float input_scale, const T* x, int64_t cols,
              float* out) {
  switch (format.kind) {
    case ActivationFormat::Kind::kFp8Static: return RoundFp8(x, cols, input_scale, out);
    case ActivationFormat::Kind::kFp8PerToken: {
      float largest = AbsMax(x, cols);
      if (format.largest_amax > 0) largest = std::min(largest, format.largest_amax);
      return RoundFp8(x, cols, ScaleOf(largest, kFloat8E4M3Max), out);
    }
    case ActivationFormat::Kind::kInt8Static:
      return RoundInt8(x, cols, input_scale, format.zero_point, out);
    case ActivationFormat::Kind::kFp8PerGroup:
      // The last group of a row may be shorter.
      for (int64_t k = 0; k < cols; k += format.group_size) {
        const int64_t count = std::min<int64_t>(format.group_size, cols - k);
        RoundFp8(x + k, count, ScaleOf(AbsMax(x + k, count), kFloat8E4M3Max), out + k);
      }
      return;
    case ActivationFormat::Kind::kNvfp4:
      for (int64_t k = 0; k < cols; k += format.group_size) {
        RoundNvfp4Group(x + k, format.group_size, input_scale, out + k);
      }
      return;
    case ActivationFormat::Kind::kMxfp4:
      for (int64_t k = 0; k < cols; k += format.group_size)
        RoundMxfp4Group(x + k, format.group_size, out + k);
      return;
    case ActivationFormat::Kind::kNone:
    case ActivationFormat::Kind::kInt8PerToken: break;
  }
  CHECK(false, "rows of this activation format are not rounded to F32");
}

// Calls row(data, index) for every row of `x`; data points to the row's elements.
template <typename Row>
void ForEachRow(ThreadPool& pool, const Activations& x, Row&& row) {
  CHECK(x.type == ElementType::kF32 || x.type == ElementType::kBF16,
        "rows to quantize are F32 or BF16, not {}", ElementTypeName(x.type));
  pool.ParallelFor(x.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (x.type == ElementType::kBF16)
        row(x.bf16() + i * x.stride, i);
      else
        row(x.f32() + i * x.stride, i);
    }
  });
}

bool HasGroups(ActivationFormat::Kind kind) {
  return kind == ActivationFormat::Kind::kFp8PerGroup || kind == ActivationFormat::Kind::kNvfp4 ||
         kind == ActivationFormat::Kind::kMxfp4;
}

}  // namespace

namespace reference {

void QuantizeInt8Row(const void* x, bool bf16, int64_t cols, int8_t* out, float* scale) {
  if (bf16)
    QuantizeInt8(static_cast<const uint16_t*>(x), cols, out, scale);
  else
    QuantizeInt8(static_cast<const float*>(x), cols, out, scale);
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(QuantizeInt8Row);

void RoundRows(ThreadPool& pool, const ActivationFormat& format, float input_scale,
               const Activations& x, float* out) {
  CHECK(!HasGroups(format.kind) || format.group_size > 0);
  CHECK(!HasGroups(format.kind) || format.kind == ActivationFormat::Kind::kFp8PerGroup ||
            x.cols % format.group_size == 0,
        "{} columns are not in groups of {}", x.cols, format.group_size);
  ForEachRow(pool, x, [&](const auto* row, int64_t i) {
    RoundRow(format, input_scale, row, x.cols, out + i * x.cols);
  });
}

void QuantizeInt8Rows(ThreadPool& pool, const Activations& x, int8_t* out, float* scales) {
  ForEachRow(pool, x, [&](const auto* row, int64_t i) {
    kQuantizeInt8Row(row, x.type == ElementType::kBF16, x.cols, out + i * x.cols, scales + i);
  });
}

}  // namespace sluice::kernels
