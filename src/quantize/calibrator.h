// Runs a calibration text through a model and measures the inputs of its linear layers. Works one
// layer at a time, so that only one layer is in memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "models/model_config.h"
#include "models/weights.h"
#include "quantize/input_statistics.h"

namespace sluice {

struct LayerStatistics {
  // Keyed by MatrixParameter::target.
  std::map<const kernels::PackedMatrix*, InputStatistics> inputs;
  InputStatistics keys, values;  // the values that are written to the KV cache
};

class Calibrator {
 public:
  // `list` contains the parameters of `spec` with targets in `weights`; all must outlive this
  // object. Weights are loaded and dropped layer by layer. `sequences`: token ids; each sequence
  // has at most config.max_position_embeddings. Allocates the hidden states of all tokens.
  static Result<std::unique_ptr<Calibrator>> Create(ThreadPool& pool, const ModelConfig& config,
                                                    const DecoderSpec& spec,
                                                    const Checkpoint& checkpoint,
                                                    const ParameterList& list,
                                                    DecoderWeights& weights,
                                                    std::vector<std::vector<int32_t>> sequences);
  virtual ~Calibrator() = default;

  // Runs the next layer on all sequences. REQUIRES: called for layers 0, 1, ... in ascending order.
  virtual Result<LayerStatistics> RunLayer(int64_t layer) = 0;
};

}  // namespace sluice
