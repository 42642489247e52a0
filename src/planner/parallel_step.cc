#include "planner/parallel_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {
namespace {

constexpr double kHalf = 2, kFloat = 4;  // bytes of a BF16 and an F32 number

double Number(int64_t value) {
  return static_cast<double>(value);
}

}  // namespace

LinkTraffic TrafficOf(const ModelShape& shape, const DeviceGroup& group) {
  const int64_t dense_layers = shape.num_layers - shape.num_moe_layers;
  // If q and k are normalized as a whole, each head's sum of squares is also gathered.
  const double normed =
      shape.norms_whole_rows ? Number(shape.num_heads + shape.num_kv_heads) * kFloat : 0;
  const double attention = Number(shape.num_heads * shape.head_dim) * kHalf +
                           Number(shape.hidden_size) * kFloat + normed;
  const double activated =
      Number(dense_layers * shape.dense_intermediate_size +
             shape.num_moe_layers * (shape.experts_per_token * shape.expert_intermediate_size +
                                     shape.shared_intermediate_size)) *
      kHalf;
  LinkTraffic traffic;
  traffic.layer_bytes =
      Number(shape.num_layers) * (attention + Number(shape.hidden_size) * kFloat) + activated;
  const double ends = Number(shape.hidden_size + shape.vocab_size) * kFloat;
  const double others = Number(group.tensor - 1) / Number(group.tensor);
  // Each stage sends its residual to the next stage, and the last stage sends it to the first.
  const double handed =
      group.stages > 1 ? Number(group.stages) * Number(shape.hidden_size) * kFloat : 0;
  if (group.tensor > 1) {
    traffic.row_bytes = traffic.layer_bytes + ends;
    traffic.received_bytes = others * traffic.row_bytes;
    const int64_t shared_layers = shape.shared_intermediate_size > 0 ? shape.num_moe_layers : 0;
    const int64_t of_layer = shape.norms_whole_rows ? 6 : 4;
    traffic.num_exchanges = of_layer * shape.num_layers + shared_layers + 2;
  }
  traffic.row_bytes += handed;
  traffic.received_bytes += handed;
  if (group.stages > 1) traffic.num_exchanges += group.stages;
  return traffic;
}

const char* ParallelStep::bound() const {
  const std::pair<double, const char*> parts[] = {{memory_seconds(), "memory"},
                                                  {flop_seconds, "arithmetic"},
                                                  {link_bytes_seconds, "link bandwidth"},
                                                  {link_wait_seconds, "link latency"}};
  return std::max_element(std::begin(parts), std::end(parts))->second;
}

ParallelStep PlanParallelStep(const StoredModel& model, const Accelerator& accelerator,
                              const DeviceGroup& group, double link_bytes_per_second,
                              double link_latency, double batch, double context) {
  const ModelShape& shape = model.shape;
  const double tensor = Number(group.tensor);
  const double ranks = tensor * Number(group.stages);
  ParallelStep step;
  step.num_sequences = std::ceil(batch / Number(group.engines));
  const double linear = Number(shape.LinearWeights()) * BytesPerWeight(model.format);
  // Embedding and head are BF16; the ranks of the first stage divide them.
  step.weight_bytes = linear / ranks + (ResidentBytes(model) - linear) / tensor;
  // If there are more ranks than KV heads, several ranks have the same head.
  const double kv_parts = std::min(tensor, Number(shape.num_kv_heads));
  const double kv_all = Number(KvBytesPerToken(model));
  step.kv_token_bytes = kv_all / kv_parts / Number(group.stages);
  step.most_sequences = static_cast<int64_t>(FreeBytes(accelerator, step.weight_bytes) /
                                             (step.kv_token_bytes * context));
  step.weight_seconds =
      WeightBytesPerStep(model, step.num_sequences) / tensor / accelerator.bytes_per_second;
  step.kv_seconds = step.num_sequences * context * kv_all / kv_parts / accelerator.bytes_per_second;
  step.flop_seconds = DecodeFlopSeconds(model, accelerator, step.num_sequences, context) / tensor;
  const LinkTraffic traffic = TrafficOf(shape, group);
  step.link_bytes_seconds = step.num_sequences * traffic.received_bytes / link_bytes_per_second;
  step.link_wait_seconds = Number(traffic.num_exchanges) * link_latency;
  return step;
}

}  // namespace sluice
