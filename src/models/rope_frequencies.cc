#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "kernels/rope.h"

namespace sluice {
namespace {

std::vector<float> Plain(double theta, int64_t head_dim) {
  return kernels::RopeFrequencies(static_cast<int>(head_dim), theta, std::nullopt);
}

double RaisedTheta(double theta, double stretch, int64_t rotary_dim) {
  const auto width = static_cast<double>(rotary_dim);
  return theta * std::pow(stretch, width / (width - 2));
}

// Returns the frequencies for an odd width, where one more element is rotated.
std::vector<float> OfOddWidth(double theta, int64_t width) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < width; i += 2)
    frequencies.push_back(
        static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(width))));
  return frequencies;
}

// Returns the base for contexts of up to factor times the original positions.
double DynamicTheta(double theta, const RopeScaling& scaling, int64_t rotary_dim) {
  return RaisedTheta(theta, scaling.factor * scaling.factor - (scaling.factor - 1), rotary_dim);
}

std::vector<float> Yarn(double theta, const RopeScaling& scaling, int64_t head_dim) {
  const auto width = static_cast<double>(head_dim);
  // Returns the dimension that makes `rotations` full rotations over the original positions.
  const auto dimension = [&](double rotations) {
    const auto original = static_cast<double>(scaling.original_max_position_embeddings);
    return width * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension(scaling.beta_fast), high = dimension(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;  // as in transformers, to avoid a division by zero
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto pair = static_cast<double>(i);
    const double frequency = std::pow(theta, -2 * pair / width);
    const double stretched = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    frequencies[i] =
        static_cast<float>(frequency / scaling.factor * stretched + frequency * (1 - stretched));
  }
  return frequencies;
}

std::vector<float> Divided(double theta, const std::vector<double>& factors) {
  std::vector<float> frequencies;
  const auto width = static_cast<double>(2 * factors.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    frequencies.push_back(
        static_cast<float>(1 / (factors[i] * std::pow(theta, 2 * static_cast<double>(i) / width))));
  }
  return frequencies;
}

// Returns the table for contexts longer than the original positions; empty if it is the same table.
std::vector<float> LongTableOf(const RopeConfig& rope, int64_t rotary_dim) {
  if (!rope.scaling) return {};
  if (rope.scaling->kind == RopeKind::kLongRope)
    return Divided(rope.theta, rope.scaling->long_factors);
  if (rope.scaling->kind != RopeKind::kDynamic || rope.scaling->alpha) return {};
  return Plain(DynamicTheta(rope.theta, *rope.scaling, rotary_dim), rotary_dim);
}

}  // namespace

std::vector<float> RopeTableOf(const RopeConfig& rope, int64_t rotary_dim) {
  if (!rope.scaling && rotary_dim % 2 != 0) return OfOddWidth(rope.theta, rotary_dim);
  if (!rope.scaling) return Plain(rope.theta, rotary_dim);
  const RopeScaling& scaling = *rope.scaling;
  switch (scaling.kind) {
    case RopeKind::kLlama3: break;
    case RopeKind::kLinear: {
      std::vector<float> frequencies = Plain(rope.theta, rotary_dim);
      for (float& frequency : frequencies) frequency /= static_cast<float>(scaling.factor);
      return frequencies;
    }
    // This table is for contexts within the original positions, which are not scaled. LongTableOf
    // returns the table for longer contexts.
    case RopeKind::kDynamic:
      return Plain(scaling.alpha ? RaisedTheta(rope.theta, *scaling.alpha, rotary_dim) : rope.theta,
                   rotary_dim);
    case RopeKind::kYarn: return Yarn(rope.theta, scaling, rotary_dim);
    case RopeKind::kLongRope: return Divided(rope.theta, scaling.short_factors);
  }
  return kernels::RopeFrequencies(
      static_cast<int>(rotary_dim), rope.theta,
      kernels::Llama3RopeScaling{
          .factor = scaling.factor,
          .low_freq_factor = scaling.low_freq_factor,
          .high_freq_factor = scaling.high_freq_factor,
          .original_max_position = scaling.original_max_position_embeddings});
}

void DescribeRope(const RopeConfig& rope, int64_t rotary_dim, DecoderSpec& spec,
                  std::vector<std::vector<float>> others) {
  spec.rope_tables = {RopeTableOf(rope, rotary_dim)};
  for (std::vector<float>& table : others) spec.rope_tables.push_back(std::move(table));
  spec.long_rope_table = LongTableOf(rope, rotary_dim);
  if (!spec.long_rope_table.empty())
    spec.short_context = rope.scaling->original_max_position_embeddings;
}

int64_t ScaledPositions(const RopeConfig& rope, int64_t positions) {
  if (!rope.scaling || rope.scaling->kind == RopeKind::kLlama3 ||
      rope.scaling->kind == RopeKind::kLongRope)
    return positions;
  const int64_t start = rope.scaling->kind == RopeKind::kYarn
                            ? rope.scaling->original_max_position_embeddings
                            : positions;
  constexpr double kMostPositions = (int64_t{1} << 31) - 1;
  return std::max<int64_t>(
      1, static_cast<int64_t>(
             std::min(static_cast<double>(start) * rope.scaling->factor, kMostPositions)));
}

}  // namespace sluice
