// Random parameters for --load-format dummy: any model's shape can be run and measured without its
// weights.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/linear.h"
#include "models/weight_loader.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;
// Uniform 16-bit integers have this standard deviation.
constexpr double kUniformDeviation = 32768 / 1.7320508075688772;

// The finalizer of SplitMix64: neighbouring counters give unrelated numbers.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t SeedOf(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return Mix(hash ^ Mix(seed));
}

float Convert(float value, float) {
  return value;
}
BFloat16 Convert(float value, BFloat16) {
  return ToBFloat16(value);
}

// Row `row` of a tensor of plain numbers: each 64-bit number gives four elements.
template <typename T>
void FillRow(uint64_t tensor_seed, int64_t row, float scale, int64_t cols, T* out) {
  const uint64_t row_seed = Mix(tensor_seed + static_cast<uint64_t>(row));
  for (int64_t k = 0; k < cols; k += 4) {
    uint64_t bits = Mix(row_seed + static_cast<uint64_t>(k));
    const int64_t end = std::min<int64_t>(cols, k + 4);
    for (int64_t i = k; i < end; ++i, bits >>= 16) {
      out[i] = Convert(static_cast<float>(static_cast<int16_t>(bits & 0xFFFF)) * scale, T{});
    }
  }
}

// Row `row` of a tensor of codes: random bytes that are valid ones.
void FillCodes(uint64_t tensor_seed, int64_t row, ElementType type, int64_t bytes, uint8_t* out) {
  const uint64_t row_seed = Mix(tensor_seed + static_cast<uint64_t>(row));
  // Clears what makes a NaN of an E4M3 number, or -128 of an integer.
  const auto valid = [type](uint8_t code) {
    if (type == ElementType::kF8E4M3 && (code & 0x7F) == 0x7F) return uint8_t(code & 0xF0);
    if (type == ElementType::kI8 && code == 0x80) return uint8_t{0};
    return code;
  };
  for (int64_t k = 0; k < bytes; k += 8) {
    uint64_t bits = Mix(row_seed + static_cast<uint64_t>(k));
    const int64_t end = std::min<int64_t>(bytes, k + 8);
    for (int64_t i = k; i < end; ++i, bits >>= 8) out[i] = valid(static_cast<uint8_t>(bits));
  }
}

// The standard deviation of random codes.
double CodeDeviation(ElementType type) {
  if (type == ElementType::kI8) return std::sqrt((256.0 * 256 - 1) / 12);
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

// A chunk of random rows in any format, to be packed like a stored one.
class RandomRows {
 public:
  RandomRows(const DataFormat& format, int64_t cols) : format_(format), cols_(cols) {
    deviation_ = 1 / std::sqrt(static_cast<double>(cols));
  }

  int64_t row_bytes() const { return cols_ * BitsPerElement(format_.type) / 8; }

  StoredMatrix Fill(ThreadPool& pool, uint64_t seed, int64_t first_row, int64_t rows) {
    data_.resize(std::max(data_.size(), static_cast<size_t>(rows * row_bytes())));
    pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        FillOne(seed, first_row + row, data_.data() + row * row_bytes());
    });
    StoredMatrix matrix{.format = format_,
                        .rows = rows,
                        .cols = cols_,
                        .data = reinterpret_cast<const std::byte*>(data_.data())};
    if (format_.scale_layout != DataFormat::ScaleLayout::kNone) FillScales(seed, matrix);
    return matrix;
  }

 private:
  void FillOne(uint64_t seed, int64_t row, uint8_t* out) const {
    const auto scale = static_cast<float>(deviation_ / kUniformDeviation);
    if (format_.type == ElementType::kBF16) {
      FillRow(seed, row, scale, cols_, reinterpret_cast<BFloat16*>(out));
    } else if (format_.type == ElementType::kF32) {
      FillRow(seed, row, scale, cols_, reinterpret_cast<float*>(out));
    } else {
      FillCodes(seed, row, format_.type, row_bytes(), out);
    }
  }

  void FillScales(uint64_t seed, StoredMatrix& matrix) {
    const double scale = deviation_ / CodeDeviation(format_.type);
    const auto count = static_cast<size_t>(ScaleCount(matrix));
    scales_.resize(std::max(scales_.size(), count * sizeof(float)));
    if (format_.scale_type == ElementType::kF32) {
      std::fill_n(reinterpret_cast<float*>(scales_.data()), count, static_cast<float>(scale));
    } else if (format_.scale_type == ElementType::kF8E8M0) {
      const long exponent = std::lround(std::log2(scale));
      std::fill_n(scales_.data(), count, static_cast<uint8_t>(127 + exponent));
    } else {
      // E4M3 from 0.5 to 1.875, under a second scale.
      for (size_t i = 0; i < count; ++i)
        scales_[i] = static_cast<uint8_t>(0x30 + (Mix(seed + i) & 0xF));
      constexpr double kMeanScale = 1.1;
      matrix.second_scale = static_cast<float>(scale / kMeanScale);
    }
    matrix.scales = reinterpret_cast<const std::byte*>(scales_.data());
  }

  DataFormat format_;
  int64_t cols_ = 0;
  double deviation_ = 0;
  std::vector<uint8_t> data_, scales_;
};

void FillMatrix(ThreadPool& pool, const MatrixParameter& matrix, uint64_t seed,
                const std::function<void(int64_t)>& done) {
  RandomRows random(matrix.target->format, matrix.cols);
  // Whole panels and whole blocks.
  const int64_t unit =
      std::max<int64_t>(kernels::PackedMatrix::kPanelRows, matrix.target->format.block_rows);
  const int64_t chunk_rows = std::max<int64_t>(1, kChunkBytes / random.row_bytes() / unit) * unit;
  int64_t first_row = 0;
  for (const ParameterPart& part : matrix.parts) {
    const uint64_t tensor_seed = SeedOf(part.name, seed);
    for (int64_t start = 0; start < part.rows; start += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, part.rows - start);
      const StoredMatrix chunk = random.Fill(pool, tensor_seed, start, rows);
      kernels::PackRows(pool, *matrix.target, first_row + start, chunk, 0, rows);
      done(rows * random.row_bytes());
    }
    first_row += part.rows;
  }
}

std::vector<DataFormat> PlannedFormats(const MatrixParameter& matrix,
                                       const QuantizationScheme& scheme) {
  std::vector<DataFormat> formats;
  for (const ParameterPart& part : matrix.parts) formats.push_back(scheme.PlannedFormat(part.name));
  return formats;
}

// Inputs of random layers are a few units large: scales that fit them.
LinearInputs PlannedInputs(const MatrixParameter& matrix, const QuantizationScheme& scheme) {
  LinearInputs inputs{.format = scheme.PlannedActivations(matrix.parts.front().name)};
  constexpr float kLargest = 16;
  if (inputs.format.kind == ActivationFormat::Kind::kFp8Static)
    inputs.scale = kLargest / kFloat8E4M3Max;
  if (inputs.format.kind == ActivationFormat::Kind::kNvfp4)
    inputs.scale = kLargest / (6 * kFloat8E4M3Max);
  return inputs;
}

}  // namespace

Status FillDummyParameters(ThreadPool& pool, const ParameterList& list, uint64_t seed,
                           const QuantizationScheme& scheme, ElementType compute_type,
                           const LoadProgress& progress) {
  int64_t total = 0, so_far = 0;
  for (const MatrixParameter& matrix : list.matrices) {
    const DataFormat format = PackedFormat(PlannedFormats(matrix, scheme), compute_type);
    total += matrix.rows() * (matrix.cols * BitsPerElement(format.type) / 8);
  }
  const auto done = [&](int64_t bytes) {
    so_far += bytes;
    if (progress) progress(so_far, total);
  };
  for (const MatrixParameter& matrix : list.matrices) {
    const DataFormat format = PackedFormat(PlannedFormats(matrix, scheme), compute_type);
    ASSIGN_OR_RETURN(*matrix.target, kernels::AllocatePacked(format, matrix.rows(), matrix.cols,
                                                             matrix.parts.front().name.c_str()));
    if (matrix.inputs != nullptr) *matrix.inputs = PlannedInputs(matrix, scheme);
    FillMatrix(pool, matrix, seed, done);
  }
  constexpr float kBiasDeviation = 0.02f;
  for (const VectorParameter& vector : list.vectors) {
    vector.target->assign(static_cast<size_t>(vector.rows()), 1.0f);
    if (vector.kind != VectorParameter::Kind::kBias) continue;
    const float scale = kBiasDeviation / static_cast<float>(kUniformDeviation);
    FillRow(SeedOf(vector.parts.front().name, seed), 0, scale, vector.rows(),
            vector.target->data());
  }
  for (const KvScaleParameter& parameter : list.kv_scales) *parameter.target = {};
  return {};
}

}  // namespace sluice
