#include "models/dummy_rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/random_bits.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

// Standard deviation of uniform 16-bit integers.
constexpr double kUniformDeviation = 32768 / 1.7320508075688772;

float Convert(float value, float) {
  return value;
}
BFloat16 Convert(float value, BFloat16) {
  return ToBFloat16(value);
}

// Fills row `row` of an unquantized tensor.
template <typename T>
void FillRow(uint64_t tensor_seed, int64_t row, float scale, int64_t cols, T* out) {
  for (int64_t k = 0; k < cols; k += 4) {
    uint64_t bits = kernels::RowBits(tensor_seed, row, k);
    const int64_t end = std::min<int64_t>(cols, k + 4);
    for (int64_t i = k; i < end; ++i, bits >>= 16)
      out[i] = Convert(kernels::UniformNumber(bits, scale), T{});
  }
}

// Fills row `row` of a tensor of codes with random valid codes.
void FillCodes(uint64_t tensor_seed, int64_t row, ElementType type, int64_t bytes, uint8_t* out) {
  const auto valid = [type](uint8_t code) {
    if (type == ElementType::kF8E4M3) return kernels::ValidE4m3Code(code);
    return type == ElementType::kI8 ? kernels::ValidI8Code(code) : code;
  };
  for (int64_t k = 0; k < bytes; k += 8) {
    uint64_t bits = kernels::RowBits(tensor_seed, row, k);
    const int64_t end = std::min<int64_t>(bytes, k + 8);
    for (int64_t i = k; i < end; ++i, bits >>= 8) out[i] = valid(static_cast<uint8_t>(bits));
  }
}

// Returns the standard deviation of random codes.
double CodeDeviation(ElementType type) {
  if (type == ElementType::kI8) return std::sqrt((256.0 * 256 - 1) / 12);
  if (type == ElementType::kInt4) return std::sqrt((16.0 * 16 - 1) / 12);
  double sum = 0;
  if (type == ElementType::kF4E2M1) {
    for (const double value : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) sum += value * value / 8;
    return std::sqrt(sum);
  }
  for (int code = 0; code < 0x7F; ++code) {
    const double value = ToFloat(Float8E4M3{static_cast<uint8_t>(code)});
    sum += value * value / 127;
  }
  return std::sqrt(sum);
}

}  // namespace

uint64_t DummySeed(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return kernels::MixBits(hash ^ kernels::MixBits(seed));
}

DummyNumbers DummyNumbers::For(const DataFormat& format, int64_t cols) {
  constexpr double kMeanScale = 1.1;  // mean of random E4M3 scales
  const double deviation = 1 / std::sqrt(static_cast<double>(cols));
  DummyNumbers numbers;
  numbers.plain_scale = static_cast<float>(deviation / kUniformDeviation);
  if (format.scale_layout == DataFormat::ScaleLayout::kNone) return numbers;
  const double scale = deviation / CodeDeviation(format.type);
  numbers.scale = static_cast<float>(scale);
  numbers.scale_power = static_cast<uint8_t>(127 + std::lround(std::log2(scale)));
  if (format.scale_type == ElementType::kF8E4M3)
    numbers.second_scale = static_cast<float>(scale / kMeanScale);
  return numbers;
}

void FillDummyBias(uint64_t tensor_seed, int64_t count, float* out) {
  constexpr float kBiasDeviation = 0.02f;
  FillRow(tensor_seed, 0, kBiasDeviation / static_cast<float>(kUniformDeviation), count, out);
}

RandomRows::RandomRows(const DataFormat& format, int64_t cols)
    : format_(format), cols_(cols), numbers_(DummyNumbers::For(format, cols)) {}

StoredMatrix RandomRows::Fill(ThreadPool& pool, uint64_t tensor_seed, int64_t first_row,
                              int64_t rows) {
  data_.resize(std::max(data_.size(), static_cast<size_t>(rows * row_bytes())));
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      FillOne(tensor_seed, first_row + row, data_.data() + row * row_bytes());
  });
  StoredMatrix matrix{.format = format_,
                      .rows = rows,
                      .cols = cols_,
                      .data = reinterpret_cast<const std::byte*>(data_.data())};
  if (format_.scale_layout != DataFormat::ScaleLayout::kNone)
    FillScales(tensor_seed, first_row, matrix);
  return matrix;
}

void RandomRows::FillOne(uint64_t seed, int64_t row, uint8_t* out) const {
  const float scale = numbers_.plain_scale;
  if (format_.type == ElementType::kBF16) {
    FillRow(seed, row, scale, cols_, reinterpret_cast<BFloat16*>(out));
  } else if (format_.type == ElementType::kF32) {
    FillRow(seed, row, scale, cols_, reinterpret_cast<float*>(out));
  } else {
    FillCodes(seed, row, format_.type, row_bytes(), out);
  }
}

void RandomRows::FillScales(uint64_t seed, int64_t first_row, StoredMatrix& matrix) {
  const auto count = static_cast<size_t>(ScaleCount(matrix));
  scales_.resize(std::max(scales_.size(), count * sizeof(float)));
  if (format_.scale_type == ElementType::kF32) {
    std::fill_n(reinterpret_cast<float*>(scales_.data()), count, numbers_.scale);
  } else if (format_.scale_type == ElementType::kF8E8M0) {
    std::fill_n(scales_.data(), count, numbers_.scale_power);
  } else {
    // The scales are random E4M3 numbers from 0.5 to 1.875; there is also a second scale.
    const int64_t first = first_row * (cols_ / format_.group_size);
    for (size_t i = 0; i < count; ++i)
      scales_[i] = kernels::RandomE4m3Scale(seed, first + static_cast<int64_t>(i));
    matrix.second_scale = numbers_.second_scale;
  }
  matrix.scales = reinterpret_cast<const std::byte*>(scales_.data());
}

}  // namespace sluice
