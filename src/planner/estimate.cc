#include "planner/estimate.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kEmbeddingBytes = 2;  // BF16
constexpr double kContextBytes = 3e9;  // context of the driver, and activations

double FlopsPerSecond(const StoredModel& model, const Accelerator& accelerator) {
  switch (model.format) {
    case WeightFormat::kBf16:
    case WeightFormat::kInt4: return accelerator.bf16_flops;
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
      return accelerator.fp8_flops > 0 ? accelerator.fp8_flops : accelerator.bf16_flops;
    case WeightFormat::kNvfp4:
    case WeightFormat::kMxfp4:
      return accelerator.fp4_flops > 0 ? accelerator.fp4_flops : accelerator.bf16_flops;
  }
  return accelerator.bf16_flops;
}

double AttentionWidth(const ModelShape& shape) {
  return static_cast<double>(shape.num_layers * shape.num_heads * shape.head_dim);
}

}  // namespace

double ResidentBytes(const StoredModel& model) {
  const ModelShape& shape = model.shape;
  return static_cast<double>(shape.LinearWeights()) * BytesPerWeight(model.format) +
         static_cast<double>(shape.TotalWeights() - shape.LinearWeights()) * kEmbeddingBytes;
}

double WeightBytesPerStep(const StoredModel& model, double batch) {
  const ModelShape& shape = model.shape;
  double weights = static_cast<double>(shape.AttentionWeights() + shape.DenseMlpWeights() +
                                       shape.SharedExpertWeights());
  if (shape.num_experts > 0) {
    const auto experts = static_cast<double>(shape.num_experts);
    const double missed = 1 - static_cast<double>(shape.experts_per_token) / experts;
    weights +=
        experts * (1 - std::pow(missed, batch)) * static_cast<double>(shape.OneExpertWeights());
  }
  return weights * BytesPerWeight(model.format) +
         static_cast<double>(shape.EmbeddingWeights()) * kEmbeddingBytes;
}

int64_t KvBytesPerToken(const StoredModel& model) {
  const ModelShape& shape = model.shape;
  return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * model.kv_element_bytes;
}

double KvCacheBytes(const StoredModel& model, const Accelerator& accelerator, double fraction) {
  return FreeBytes(accelerator, ResidentBytes(model)) * fraction;
}

double FreeBytes(const Accelerator& accelerator, double weight_bytes) {
  const auto memory = static_cast<double>(accelerator.memory_bytes - accelerator.system_bytes);
  return std::max(0.0, memory - weight_bytes - kContextBytes);
}

double DecodeFlopSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context) {
  const double flops_per_token =
      2 * static_cast<double>(model.shape.ActiveWeights() + model.shape.EmbeddingWeights()) +
      4 * AttentionWidth(model.shape) * context;
  return batch * flops_per_token / FlopsPerSecond(model, accelerator);
}

double DecodeStepSeconds(const StoredModel& model, const Accelerator& accelerator, double batch,
                         double context) {
  const double bytes = WeightBytesPerStep(model, batch) +
                       batch * context * static_cast<double>(KvBytesPerToken(model));
  return std::max(bytes / accelerator.bytes_per_second,
                  DecodeFlopSeconds(model, accelerator, batch, context));
}

double PrefillSeconds(const StoredModel& model, const Accelerator& accelerator, double tokens) {
  // A token attends to half of the prompt on average.
  const double flops = 2 * static_cast<double>(model.shape.ActiveWeights()) * tokens +
                       2 * AttentionWidth(model.shape) * tokens * tokens;
  return flops / FlopsPerSecond(model, accelerator);
}

WorkloadEstimate EstimateWorkload(const StoredModel& model, const Accelerator& accelerator,
                                  int64_t concurrency, int64_t input, int64_t output,
                                  double kv_fraction) {
  WorkloadEstimate estimate;
  const double context = static_cast<double>(input) + static_cast<double>(output) / 2;
  const double capacity =
      KvCacheBytes(model, accelerator, kv_fraction) / static_cast<double>(KvBytesPerToken(model));
  estimate.num_resident = std::min(concurrency, static_cast<int64_t>(capacity / context));
  if (estimate.num_resident == 0) return estimate;
  const auto batch = static_cast<double>(estimate.num_resident);
  estimate.step_seconds = DecodeStepSeconds(model, accelerator, batch, context);
  estimate.prefill_seconds = PrefillSeconds(model, accelerator, static_cast<double>(input));
  const auto tokens = static_cast<double>(output);
  estimate.serial_tokens_per_second =
      tokens / (estimate.prefill_seconds + tokens * estimate.step_seconds / batch);
  return estimate;
}

}  // namespace sluice
