// Estimates the cost of a decode step on several accelerators by part: memory, arithmetic, and
// exchanges between ranks.
#pragma once

#include <cstdint>

#include "planner/accelerators.h"
#include "planner/estimate.h"

namespace sluice {

// `tensor` devices share each layer, and `stages` groups of these devices divide the layers.
// `engines` copies of the whole model divide the sequences.
struct DeviceGroup {
  int64_t tensor = 1;
  int64_t stages = 1;
  int64_t engines = 1;

  int64_t num_devices() const { return tensor * stages * engines; }
};

// Bytes that a rank receives in a step. Ranks divide every matrix by output rows and gather the
// results. Per row and layer: the attention heads' output and the MLP's activations (of each chosen
// expert) in BF16, and the output of both sublayers in F32. Once per row: the embedding and the
// logits in F32. Between stages: the residual in F32.
struct LinkTraffic {
  double layer_bytes = 0;  // bytes per row for all layers, summed over the parts of all ranks
  // Bytes per row of a step, summed over the parts of all ranks: layers, embedding, logits, and
  // residuals between stages.
  double row_bytes = 0;
  // Bytes per row that the busiest rank receives; in a gather, all parts except its own.
  double received_bytes = 0;
  int64_t num_exchanges = 0;  // consecutive exchanges in a step
};
LinkTraffic TrafficOf(const ModelShape& shape, const DeviceGroup& group);

struct ParallelStep {
  double num_sequences = 0;   // per engine
  double weight_bytes = 0;    // bytes of weights on the rank that has the most
  double kv_token_bytes = 0;  // bytes per token, on the rank with the most
  // Number of sequences of `context` tokens that fit into the memory left by the weights, per
  // engine.
  int64_t most_sequences = 0;
  // Seconds per step, summed over all stages.
  double weight_seconds = 0;
  double kv_seconds = 0;
  double flop_seconds = 0;
  double link_bytes_seconds = 0;
  double link_wait_seconds = 0;  // latency of all exchanges

  double memory_seconds() const { return weight_seconds + kv_seconds; }
  double link_seconds() const { return link_bytes_seconds + link_wait_seconds; }
  // Returns the time of the step. Reads and arithmetic overlap; exchanges do not.
  double seconds() const {
    return (memory_seconds() > flop_seconds ? memory_seconds() : flop_seconds) + link_seconds();
  }
  // Returns the part that takes longest: "memory", "arithmetic", "link bandwidth" or "link
  // latency".
  const char* bound() const;
};

// Estimates a step of `batch` sequences in total over all engines, with `context` tokens each.
// `link_latency`: seconds per exchange, in addition to the time for its bytes.
ParallelStep PlanParallelStep(const StoredModel& model, const Accelerator& accelerator,
                              const DeviceGroup& group, double link_bytes_per_second,
                              double link_latency, double batch, double context);

}  // namespace sluice
