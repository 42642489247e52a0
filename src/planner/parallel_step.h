// The cost of a decode step on several accelerators, by part: memory, arithmetic, and exchanges
// between ranks.
#pragma once

#include <cstdint>

#include "planner/accelerators.h"
#include "planner/estimate.h"

namespace sluice {

// `tensor` devices share each layer, `stages` divide the layers, and `engines` such groups divide
// the sequences.
struct DeviceGroup {
  int64_t tensor = 1;
  int64_t stages = 1;
  int64_t engines = 1;

  int64_t num_devices() const { return tensor * stages * engines; }
};

// Bytes that a rank receives in a step. Every matrix is cut by output rows, and results are
// gathered. Per row and layer: the attention heads' output and the MLP's activations (of each
// chosen expert) in BF16, and the output of both sublayers in F32. Once per row: the embedding and
// the logits in F32. Between stages: the residual in F32.
struct LinkTraffic {
  double layer_bytes = 0;  // per row, in all layers, all ranks' parts together
  // Per row of a step: also embedding, logits, and residuals between stages.
  double row_bytes = 0;
  // Per row, received by the busiest rank: in a gather, all parts but its own.
  double received_bytes = 0;
  int64_t num_exchanges = 0;  // consecutive exchanges in a step
};
LinkTraffic TrafficOf(const ModelShape& shape, const DeviceGroup& group);

struct ParallelStep {
  double num_sequences = 0;    // per engine
  double weight_bytes = 0;     // on the rank with most
  double kv_token_bytes = 0;   // on the rank with most, per token
  int64_t most_sequences = 0;  // of `context` tokens, that fit beside the weights, per engine
  // Seconds per step, all stages added up.
  double weight_seconds = 0;
  double kv_seconds = 0;
  double flop_seconds = 0;
  double link_bytes_seconds = 0;
  double link_wait_seconds = 0;  // latency of the exchanges

  double memory_seconds() const { return weight_seconds + kv_seconds; }
  double link_seconds() const { return link_bytes_seconds + link_wait_seconds; }
  // Reading and computing overlap; exchanges do not.
  double seconds() const {
    return (memory_seconds() > flop_seconds ? memory_seconds() : flop_seconds) + link_seconds();
  }
  // The part that takes longest: "memory", "arithmetic", "link bandwidth" or "link latency".
  const char* bound() const;
};

// A step of `batch` sequences, over all engines, with `context` tokens each. `link_latency`:
// seconds per exchange, in addition to the time for its bytes.
ParallelStep PlanParallelStep(const StoredModel& model, const Accelerator& accelerator,
                              const DeviceGroup& group, double link_bytes_per_second,
                              double link_latency, double batch, double context);

}  // namespace sluice
