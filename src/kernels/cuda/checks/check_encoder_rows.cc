#include "kernels/cuda/checks/check_encoder_rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

struct EncoderRows {
  int64_t rows, cols;
};

// Widths that consist of whole vectors, widths that do not, and widths for which a thread holds two
// vectors; then the widths of published encoders.
std::vector<EncoderRows> EncoderShapes(const CheckRun& run) {
  if (!run.with_all_shapes()) return {{1, 64}, {3, 100}, {2, 1024}};
  std::vector<EncoderRows> shapes = {{5, 1},    {5, 7},    {4, 33},   {1, 64},   {3, 96},
                                     {3, 100},  {2, 257},  {5, 1000}, {3, 1024}, {2, 4096},
                                     {2, 4104}, {2, 8192}, {130, 384}};
  if (run.with_large_shapes()) {
    for (const EncoderRows shape : {EncoderRows{8192, 768}, {4096, 1024}, {2048, 3072}})
      shapes.push_back(shape);
  }
  return shapes;
}

std::string EncoderText(const EncoderRows& shape, const char* words) {
  return fmt::format("{} x {}, {}", shape.rows, shape.cols, words);
}

enum class EncoderTables : uint8_t { kBoth, kTypes, kFirstType };
constexpr const char* kEncoderTableNames[] = {"positions and types", "types",
                                              "positions and one type"};

void CheckAddEmbeddings(CaseMemory& memory, Comparison& comparison, const EncoderRows& shape,
                        EncoderTables tables) {
  constexpr int64_t kPositions = 40, kTypes = 2;
  constexpr int32_t kFirstPosition = 2;
  TestNumbers numbers(141);
  const bool has_positions = tables != EncoderTables::kTypes,
             has_types = tables != EncoderTables::kFirstType;
  const std::vector<float> x = numbers.Normals(shape.rows * shape.cols);
  const std::vector<float> places = numbers.Normals(kPositions * shape.cols);
  const std::vector<float> kinds = numbers.Normals(kTypes * shape.cols);
  std::vector<int32_t> positions(static_cast<size_t>(shape.rows)), types(positions.size());
  for (int32_t& position : positions)
    position = static_cast<int32_t>(numbers.Integer(0, kPositions - kFirstPosition - 1));
  for (int32_t& type : types) type = static_cast<int32_t>(numbers.Integer(0, kTypes - 1));
  positions.back() = kPositions - kFirstPosition - 1;
  types.back() = 1;
  float* const out = memory.InOut(x);
  memory.Launch(&DeviceKernels::add_embeddings,
                {.out = out,
                 .rows = shape.rows,
                 .cols = shape.cols,
                 .position_table = has_positions ? memory.In(places) : nullptr,
                 .positions = memory.In(positions),
                 .first_position = kFirstPosition,
                 .type_table = memory.In(kinds),
                 .types = has_types ? memory.In(types) : nullptr});
  const auto got = memory.Read(out, shape.rows * shape.cols);
  const auto width = static_cast<size_t>(shape.cols);
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t row = i / width, col = i % width;
    const auto type = static_cast<size_t>(has_types ? types[row] : 0);
    const auto position = static_cast<size_t>(positions[row]) + size_t{kFirstPosition};
    float added = kinds[type * width + col];
    if (has_positions) added = places[position * width + col] + added;
    comparison.AddF32(got[i], x[i] + added, 0);
  }
}

struct NormCase {
  const char* words;
  bool has_delta, has_bias, keeps_norm;
  float mean;  // mean of the rows
};
constexpr NormCase kNormCases[] = {
    {"before", false, false, false, 0},        {"before, delta", true, false, false, 0},
    {"behind, bias", true, true, true, 0},     {"behind, bias, mean 100", true, true, true, 100},
    {"of an embedding", false, true, true, 0},
};

// Adds the exact norm of a row and the bounds of the kernel's error.
void AddExactNorm(const float* x, int64_t cols, const float* weight, const float* bias, float eps,
                  std::vector<double>& values, std::vector<double>& errors) {
  // Number of additions that affect an element: those of a thread's two vectors, then two trees of
  // 32.
  constexpr double kSums = 16 + 10 + 1;
  const auto count = static_cast<double>(cols);
  double sum = 0, size = 0, squares = 0, square_errors = 0;
  for (int64_t i = 0; i < cols; ++i) sum += x[i], size += std::abs(x[i]);
  const double mean = sum / count, mean_error = size / count * Gamma(kSums);
  const auto error_of = [&](double difference) {
    return mean_error + (std::abs(difference) + mean_error) * kUnitF32;
  };
  for (int64_t i = 0; i < cols; ++i) {
    const double difference = x[i] - mean, error = error_of(difference);
    squares += difference * difference;
    square_errors += error * (2 * std::abs(difference) + error);
  }
  const double variance = squares / count;
  const double variance_error =
      (square_errors + (squares + square_errors) * Gamma(kSums + 1)) / count;
  const double factor = 1 / std::sqrt(variance + eps);
  // Errors of 1 / sqrt(1 + r) for r up to 1 / 4; then errors of the sum, the root and the quotient.
  const double factor_error = variance_error / (variance + eps) + Gamma(kMathUnits + 3);
  for (int64_t i = 0; i < cols; ++i) {
    const double difference = x[i] - mean, scaled = difference * factor * weight[i];
    const double error =
        error_of(difference) * factor * std::abs(weight[i]) * (1 + factor_error + Gamma(2)) +
        std::abs(scaled) * (factor_error + Gamma(2));
    const double value = scaled + (bias == nullptr ? 0 : bias[i]);
    values.push_back(value);
    errors.push_back(error + (std::abs(value) + error) * kUnitF32);
  }
}

void CheckLayerNorm(CaseMemory& memory, Comparison& comparison, const EncoderRows& shape,
                    const NormCase& norm) {
  constexpr float kEps = 1e-5f;
  TestNumbers numbers(142);
  const int64_t count = shape.rows * shape.cols;
  std::vector<float> x = numbers.Normals(count);
  for (float& value : x) value += norm.mean;
  if (shape.rows > 1) std::fill(x.end() - shape.cols, x.end(), 3.0f);  // a row with zero variance
  const std::vector<float> before = x;
  std::vector<float> delta = numbers.Normals(count);
  if (shape.rows > 1) std::fill(delta.end() - shape.cols, delta.end(), 0.5f);
  std::vector<float> weight(static_cast<size_t>(shape.cols));
  for (float& value : weight) value = numbers.Uniform(-1.5f, 1.5f);
  const std::vector<float> bias = numbers.Normals(shape.cols);
  const float* const device_delta = norm.has_delta ? memory.In(delta) : nullptr;
  const float* const device_weight = memory.In(weight);
  const float* const device_bias = norm.has_bias ? memory.In(bias) : nullptr;
  std::vector<double> values, errors;
  for (int64_t row = 0; row < shape.rows; ++row) {
    float* const at = x.data() + row * shape.cols;
    for (int64_t i = 0; norm.has_delta && i < shape.cols; ++i)
      at[i] += delta[static_cast<size_t>(row * shape.cols + i)];
    AddExactNorm(at, shape.cols, weight.data(), norm.has_bias ? bias.data() : nullptr, kEps, values,
                 errors);
  }
  const auto run = [&](float* residual, uint16_t* out, int64_t first, int64_t rows) {
    const int64_t begin = first * shape.cols;
    if (residual == nullptr || out == nullptr) return;
    memory.Launch(&DeviceKernels::layer_norm,
                  {.residual = residual + begin,
                   .delta = norm.has_delta ? device_delta + begin : nullptr,
                   .weight = device_weight,
                   .bias = device_bias,
                   .eps = kEps,
                   .rows = rows,
                   .cols = shape.cols,
                   .keeps_norm = norm.keeps_norm,
                   .out = out});
  };
  float* const residual = memory.InOut(before);
  uint16_t* const out = memory.Out<uint16_t>(count);
  run(residual, out, 0, shape.rows);
  const auto got = memory.Read(out, count);
  comparison.SetSubject("norms");
  for (size_t i = 0; i < got.size(); ++i) comparison.AddBf16(got[i], values[i], errors[i]);
  comparison.SetSubject("residual");
  const auto kept = memory.Read(residual, count);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (norm.keeps_norm) {
      comparison.AddF32(kept[i], values[i], errors[i]);
      comparison.AddEqual(got[i], ToBFloat16(kept[i]).bits);
    } else {
      comparison.AddF32(kept[i], x[i], 0);
    }
  }
  comparison.SetSubject("norms in F32");
  float* const in_f32 = memory.Out<float>(count);
  memory.Launch(&DeviceKernels::layer_norm, {.residual = memory.InOut(before),
                                             .delta = device_delta,
                                             .weight = device_weight,
                                             .bias = device_bias,
                                             .eps = kEps,
                                             .rows = shape.rows,
                                             .cols = shape.cols,
                                             .keeps_norm = norm.keeps_norm,
                                             .out = nullptr,
                                             .out_f32 = in_f32});
  const auto wide = memory.Read(in_f32, count);
  for (size_t i = 0; i < wide.size(); ++i) comparison.AddF32(wide[i], values[i], errors[i]);
  comparison.SetSubject("the last row alone");
  uint16_t* const alone = memory.Out<uint16_t>(shape.cols);
  run(memory.InOut(before), alone, shape.rows - 1, 1);
  const auto last = memory.Read(alone, shape.cols);
  for (size_t i = 0; i < last.size(); ++i)
    comparison.AddEqual(last[i], got[got.size() - last.size() + i]);
}

struct ActivationCase {
  const char* words;
  bool gated, relu;
};
constexpr ActivationCase kActivationCases[] = {
    {"gelu", false, false}, {"gated gelu", true, false}, {"relu", false, true}};

// GELU with erf, and the bound of the kernel's error. erf is approximated to 1.5e-7
// (kernels/gelu.h) by exp times a polynomial whose terms add up to at most 4.5.
std::pair<double, double> ExactGelu(double x) {
  constexpr double kApproximation = 1.5e-7, kTerms = 4.5;
  const double half = std::abs(x) / 2, squares = x * x / 2;
  const double value = x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
  // The error bound includes these roundings: those of the polynomial, of exp, and of the argument
  // of exp.
  const double erfc_error =
      kApproximation + kTerms * std::exp(-squares) * (Gamma(14 + kMathUnits) + squares * Gamma(2));
  const double tail = half * std::erfc(std::abs(x) / std::numbers::sqrt2);
  return {value, half * erfc_error * (1 + Gamma(2)) + tail * Gamma(2) +
                     (std::abs(value) + half * erfc_error) * kUnitF32};
}

void CheckActivate(CaseMemory& memory, Comparison& comparison, const EncoderRows& shape,
                   const ActivationCase& activation) {
  TestNumbers numbers(143);
  const int64_t stride = activation.gated ? 2 * shape.cols : shape.cols;
  std::vector<float> x = numbers.Normals(shape.rows * stride);
  for (float& value : x) value *= 3;
  if (shape.cols > 10) x[1] = 200, x[2] = -200, x[3] = 0, x[4] = 1e30f, x[5] = -1e30f;
  const std::vector<uint16_t> bits = ToBf16Bits(x);
  const uint16_t* const in = memory.In(bits);
  uint16_t* const out = memory.Out<uint16_t>(shape.rows * shape.cols);
  memory.Launch(&DeviceKernels::activate, {.x = in,
                                           .rows = shape.rows,
                                           .width = shape.cols,
                                           .gated = activation.gated,
                                           .relu = activation.relu,
                                           .out = out});
  const auto got = memory.Read(out, shape.rows * shape.cols);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto width = static_cast<size_t>(shape.cols);
    const size_t at = i / width * static_cast<size_t>(stride) + i % width;
    const double z = FromBf16Bits(bits[at]);
    auto [value, error] = activation.relu ? std::pair(std::max(z, 0.0), 0.0) : ExactGelu(z);
    if (activation.gated) {
      const double up = FromBf16Bits(bits[at + width]);
      value *= up;
      error = error * std::abs(up) + std::abs(value) * Gamma(2);
    }
    comparison.AddBf16(got[i], value, error);
  }
}

}  // namespace

void CheckEncoderRows(CheckRun& run) {
  for (const EncoderRows& shape : EncoderShapes(run)) {
    for (const EncoderTables tables :
         {EncoderTables::kBoth, EncoderTables::kTypes, EncoderTables::kFirstType}) {
      run.Case("add_embeddings", EncoderText(shape, kEncoderTableNames[static_cast<int>(tables)]),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckAddEmbeddings(memory, comparison, shape, tables);
               });
    }
    for (const NormCase& norm : kNormCases) {
      run.Case("layer_norm", EncoderText(shape, norm.words),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckLayerNorm(memory, comparison, shape, norm);
               });
    }
    for (const ActivationCase& activation : kActivationCases) {
      run.Case("activate", EncoderText(shape, activation.words),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckActivate(memory, comparison, shape, activation);
               });
    }
  }
}

}  // namespace sluice::checks
