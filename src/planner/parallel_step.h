// What a decoding step costs on several accelerators, by part: memory, arithmetic, and what ranks
// send each other.
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

// What a rank receives in a step, where every matrix is cut by its output rows and results are
// gathered: of each row and layer the attention's result and the MLP's (each token's experts') in
// BF16, and both sublayers' in F32; once, the row's embedding and its logits in F32. Between stages
// the residual in F32.
struct LinkTraffic {
  double layer_bytes = 0;  // of one row in all layers, all ranks' parts together
  double row_bytes = 0;    // of one row in a step: with embedding, logits, and between stages
  // The bytes of a row that the busiest rank receives: of a gather, all parts but its own.
  double received_bytes = 0;
  int64_t num_exchanges = 0;  // that follow each other in a step
};
LinkTraffic TrafficOf(const ModelShape& shape, const DeviceGroup& group);

struct ParallelStep {
  double num_sequences = 0;    // of an engine
  double weight_bytes = 0;     // that the fullest rank holds
  double kv_token_bytes = 0;   // likewise, of a token
  int64_t most_sequences = 0;  // of `context` tokens, that fit beside the weights, of an engine
  // Seconds of a step, all stages one after another.
  double weight_seconds = 0;
  double kv_seconds = 0;
  double flop_seconds = 0;
  double link_bytes_seconds = 0;
  double link_wait_seconds = 0;  // latency of the exchanges

  double memory_seconds() const { return weight_seconds + kv_seconds; }
  double link_seconds() const { return link_bytes_seconds + link_wait_seconds; }
  // Reading and computing overlap; what is gathered is waited for.
  double seconds() const {
    return (memory_seconds() > flop_seconds ? memory_seconds() : flop_seconds) + link_seconds();
  }
  // "memory", "arithmetic", "link bandwidth" or "link latency": what takes longest.
  const char* bound() const;
};

// A step of `batch` sequences, over all engines, with `context` tokens each. `link_latency`:
// seconds that an exchange takes beside its bytes.
ParallelStep PlanParallelStep(const StoredModel& model, const Accelerator& accelerator,
                              const DeviceGroup& group, double link_bytes_per_second,
                              double link_latency, double batch, double context);

}  // namespace sluice
