#include "simulation/step_clock.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace sluice {
namespace {

// From this number of rows on, a product reaches its best rate.
constexpr double kWideRows = 256;

double& At(StepParts& parts, StepPart part) {
  return parts[static_cast<size_t>(part)];
}

// Returns the sum, over tokens [context, context + count), of the number of positions that the
// token attends to.
double AttendedPositions(const AttentionSpan& span, int64_t context, int64_t count) {
  const auto first = static_cast<double>(context), tokens = static_cast<double>(count);
  const double all = tokens * first + tokens * (tokens + 1) / 2;
  if (span.sees_all()) return all;
  // Uses the number of positions that the middle token attends to as the average.
  const int64_t middle = context + count / 2;
  const auto seen = static_cast<double>(middle + 1 - span.FirstSeen(middle));
  return std::min(all, tokens * seen);
}

// Returns the number of positions whose keys and values a slice reads.
double ReadPositions(const AttentionSpan& span, int64_t context, int64_t count) {
  return static_cast<double>(context + count - span.FirstSeen(context));
}

}  // namespace

StepClock::StepClock(DeviceProfile device, StepCosts costs)
    : device_(std::move(device)), costs_(std::move(costs)) {}

double StepClock::RateOf(ProductRate rate) const {
  if (rate == ProductRate::kFp8 && device_.fp8_flops > 0) return device_.fp8_flops;
  if (rate == ProductRate::kFp4 && device_.fp4_flops > 0) return device_.fp4_flops;
  return device_.bf16_flops;
}

StepParts StepClock::AmountsOf(std::span<const SliceLoad> slices) const {
  double rows = 0, wanted = 0;
  for (const SliceLoad& slice : slices) {
    rows += static_cast<double>(slice.num_tokens);
    wanted += static_cast<double>(slice.wanted_rows);
  }
  StepParts amounts{};
  if (rows == 0) return amounts;
  double weights = 0, cache = 0, products = 0, attention = 0, layers = 0;
  for (const StageCosts& stage : costs_.stages) {
    for (const ProductRate rate : {ProductRate::kBf16, ProductRate::kFp8, ProductRate::kFp4}) {
      const StageCosts::Products& dense = stage.dense[static_cast<size_t>(rate)];
      weights += dense.bytes;
      products += rows * dense.row_operations / RateOf(rate);
    }
    if (wanted > 0) weights += stage.head.bytes;
    products += wanted * stage.head.row_operations / device_.bf16_flops;
    if (stage.num_experts > 0) {
      // Assumes that rows choose experts uniformly and independently.
      const double missed = 1 - stage.experts_per_row / stage.num_experts;
      weights += stage.num_experts * (1 - std::pow(missed, rows)) * stage.expert_bytes;
      products += rows * stage.expert_operations / RateOf(stage.expert_rate);
    }
    for (const StageCosts::Attention& layer : stage.attention) {
      double read = 0, attended = 0;
      for (const SliceLoad& slice : slices) {
        read += ReadPositions(layer.span, slice.context, slice.num_tokens);
        attended += AttendedPositions(layer.span, slice.context, slice.num_tokens);
      }
      cache += read * layer.position_bytes;
      attention += attended * layer.position_operations;
    }
    layers += static_cast<double>(stage.num_layers);
  }
  At(amounts, StepPart::kWeights) = weights / device_.bytes_per_second;
  At(amounts, StepPart::kCache) = cache / device_.bytes_per_second;
  At(amounts, StepPart::kProducts) = products;
  At(amounts, StepPart::kNarrow) = products * std::min(1.0, kWideRows / rows);
  At(amounts, StepPart::kAttention) = attention / device_.bf16_flops;
  At(amounts, StepPart::kLayers) = layers;
  At(amounts, StepPart::kSteps) = 1;
  At(amounts, StepPart::kSequences) = static_cast<double>(slices.size());
  if (costs_.tensor_size > 1) {
    At(amounts, StepPart::kLinkBytes) = rows * costs_.link_bytes / device_.link_bytes_per_second;
    At(amounts, StepPart::kLinkWaits) = costs_.num_exchanges;
  }
  return amounts;
}

double SecondsOf(const StepParts& amounts, const StepParts& factors) {
  return std::inner_product(amounts.begin(), amounts.end(), factors.begin(), 0.0);
}

double StepClock::SecondsOf(std::span<const SliceLoad> slices) const {
  return sluice::SecondsOf(AmountsOf(slices), device_.factors);
}

}  // namespace sluice
