#include "tensor/encode_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/bfloat16.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

// Like llm-compressor, half of the 255 steps.
constexpr float kInt8Range = 127.5f;

float Amax(const float* w, int64_t count) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(w[i]));
  return amax;
}

// Returns the nearest E2M1 code. Ties go to the even code; large values saturate.
uint8_t ToFloat4(float x, bool keeps_negative_zero) {
  const float a = std::fabs(x);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  const bool negative = std::signbit(x) && (code != 0 || keeps_negative_zero);
  return static_cast<uint8_t>(code | (negative ? 8 : 0));
}

float Quotient(const Encoding& encoding, float w, float scale) {
  const float quotient = w / scale;
  return encoding.rounds_quotient ? ToFloat(ToBFloat16(quotient)) : quotient;
}

uint8_t EncodeByte(const Encoding& encoding, float w, float scale) {
  const float quotient = Quotient(encoding, w, scale);
  if (encoding.format.type == ElementType::kF8E4M3) return ToFloat8E4M3(quotient).bits;
  const float integer = std::clamp(std::nearbyint(quotient), -128.0f, 127.0f);
  return static_cast<uint8_t>(static_cast<int8_t>(integer));
}

// Returns the scale of a row or block, rounded to the type of its scales.
float ByteScale(const Encoding& encoding, float amax) {
  if (amax == 0) return 1;
  const float top = encoding.format.type == ElementType::kI8 ? kInt8Range : kFloat8E4M3Max;
  const float scale = RoundNumber(encoding.format.scale_type, amax / top);
  return scale > 0 ? scale : 1;  // 1 if the scale underflowed
}

// Encodes a group with a given scale. Returns the sum of squared errors.
double EncodeGroup(const float* w, int64_t count, float scale, bool keeps_negative_zero,
                   uint8_t* codes) {
  double error = 0;
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = scale == 0 ? uint8_t{0} : ToFloat4(w[i] / scale, keeps_negative_zero);
    const double difference = static_cast<double>(Float4ToFloat(codes[i])) * scale - w[i];
    error += difference * difference;
  }
  return error;
}

// Encodes a group of 4-bit numbers. Returns the code of the group's scale.
uint8_t EncodeBestGroup(const Encoding& encoding, GroupScales group_scales, const float* w,
                        float second_scale, uint8_t* codes) {
  const int64_t count = encoding.format.group_size;
  const bool powers = encoding.format.scale_type == ElementType::kF8E8M0;
  const float amax = Amax(w, count);
  const auto value_of = [&](int code) {
    return powers ? PowerOfTwoToFloat(static_cast<uint8_t>(code))
                  : ToFloat(Float8E4M3{static_cast<uint8_t>(code)}) * second_scale;
  };
  const int usual =
      powers ? PowerOfTwoScale(amax) : ToFloat8E4M3(amax / (kFloat4Max * second_scale)).bits;
  double least = EncodeGroup(w, count, value_of(usual), encoding.keeps_negative_zero, codes);
  const bool is_nan = powers && usual == 0xFF;  // no scale has a smaller error
  if (group_scales == GroupScales::kAmax || amax == 0 || is_nan) return static_cast<uint8_t>(usual);
  // Tries scales from half of the usual one up to the next larger one.
  const int first = powers ? usual - 1 : usual - 8;
  const int last = usual + 1;
  const int largest = powers ? 0xFE : 0x7E;
  int best = usual;
  std::array<uint8_t, 32> attempt{};
  for (int code = std::max(first, powers ? 0 : 1); code <= std::min(last, largest); ++code) {
    if (code == usual) continue;
    const double error =
        EncodeGroup(w, count, value_of(code), encoding.keeps_negative_zero, attempt.data());
    if (error >= least) continue;
    least = error;
    best = code;
    std::copy_n(attempt.begin(), count, codes);
  }
  return static_cast<uint8_t>(best);
}

void EncodeGroups(const Encoding& encoding, GroupScales group_scales, const float* w, int64_t rows,
                  int64_t cols, float second_scale, uint8_t* codes, uint8_t* scales) {
  const int64_t size = encoding.format.group_size;
  std::array<uint8_t, 32> group{};
  CHECK(size <= static_cast<int64_t>(group.size()) && cols % size == 0);
  for (int64_t begin = 0; begin < rows * cols; begin += size) {
    scales[begin / size] =
        EncodeBestGroup(encoding, group_scales, w + begin, second_scale, group.data());
    for (int64_t i = 0; i < size; i += 2) {
      codes[(begin + i) / 2] = static_cast<uint8_t>(group[static_cast<size_t>(i)] |
                                                    group[static_cast<size_t>(i) + 1] << 4);
    }
  }
}

void EncodeBlocks(const Encoding& encoding, const float* w, int64_t rows, int64_t cols,
                  uint8_t* codes, std::byte* scales) {
  const DataFormat& format = encoding.format;
  for (int64_t row = 0; row < rows; row += format.block_rows) {
    const int64_t row_end = std::min<int64_t>(rows, row + format.block_rows);
    for (int64_t col = 0; col < cols; col += format.group_size) {
      const int64_t width = std::min<int64_t>(cols - col, format.group_size);
      float amax = 0;
      for (int64_t i = row; i < row_end; ++i)
        amax = std::max(amax, Amax(w + i * cols + col, width));
      const float scale = ByteScale(encoding, amax);
      scales += WriteNumber(format.scale_type, scale, scales);
      for (int64_t i = row; i < row_end; ++i) {
        for (int64_t k = col; k < col + width; ++k)
          codes[i * cols + k] = EncodeByte(encoding, w[i * cols + k], scale);
      }
    }
  }
}

}  // namespace

float RoundNumber(ElementType type, float value) {
  return type == ElementType::kBF16 ? ToFloat(ToBFloat16(value)) : value;
}

int64_t WriteNumber(ElementType type, float value, std::byte* out) {
  if (type == ElementType::kF32) {
    std::memcpy(out, &value, 4);
    return 4;
  }
  CHECK(type == ElementType::kBF16);
  const uint16_t bits = ToBFloat16(value).bits;
  std::memcpy(out, &bits, 2);
  return 2;
}

float TensorScale(const Encoding& encoding, float amax) {
  if (amax == 0) return 1;
  if (encoding.format.has_second_scale) return amax / (kFloat4Max * kFloat8E4M3Max);
  return ByteScale(encoding, amax);
}

void EncodeRows(const Encoding& encoding, GroupScales group_scales, const float* w, int64_t rows,
                int64_t cols, float tensor_scale, std::byte* codes, std::byte* scales) {
  auto* bytes = reinterpret_cast<uint8_t*>(codes);
  switch (encoding.format.scale_layout) {
    case DataFormat::ScaleLayout::kPerTensor:
      for (int64_t i = 0; i < rows * cols; ++i) bytes[i] = EncodeByte(encoding, w[i], tensor_scale);
      return;
    case DataFormat::ScaleLayout::kPerRow:
      for (int64_t row = 0; row < rows; ++row) {
        const float scale = ByteScale(encoding, Amax(w + row * cols, cols));
        scales += WriteNumber(encoding.format.scale_type, scale, scales);
        for (int64_t k = 0; k < cols; ++k)
          bytes[row * cols + k] = EncodeByte(encoding, w[row * cols + k], scale);
      }
      return;
    case DataFormat::ScaleLayout::kPerGroup:
      return EncodeGroups(encoding, group_scales, w, rows, cols, tensor_scale, bytes,
                          reinterpret_cast<uint8_t*>(scales));
    case DataFormat::ScaleLayout::kPerBlock:
      return EncodeBlocks(encoding, w, rows, cols, bytes, scales);
    case DataFormat::ScaleLayout::kNone: CHECK(false, "a format without scales");
  }
}

}  // namespace sluice
