// CUDA graphs of a decoder's steps, keyed by number of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "models/decoder_spec.h"
#include "models/device/device_weights.h"
#include "models/model.h"
#include "models/program/program.h"

namespace sluice {

// Returns the estimated device memory of the graphs for options.recorded, which the driver
// allocates during capture: the operations of `program` (LaunchesOf) for each size and level. CUDA
// documents only that a graph stores its kernels' parameters. So each operation counts as
// kGraphOperationBytes, the parameter limit of all CUDA versions. Parameters of sluice's kernels
// take some hundred bytes of it; the rest allows for the driver's other data. `spec`: of the model
// or of this rank's share.
inline constexpr int64_t kGraphOperationBytes = 4096;
int64_t GraphBytes(const program::Program& program, const DeviceProgramWeights& weights,
                   const DecoderSpec& spec, const ModelOptions& options);

// Ownership: owns its graphs. Destroy it before the memory that their steps use.
class StepGraphs {
 public:
  // The graphs for steps of up to `sequences` sequences.
  struct Size {
    int64_t sequences = 0;
    std::vector<std::unique_ptr<DeviceGraph>>
        graphs;  // by PaddedStep::level; has graphs for all levels, or is empty
  };

  StepGraphs() = default;
  // Creates an object without graphs. `keys`: address of the keys in the cache that the steps use.
  StepGraphs(const RecordedSteps& steps, const void* keys);

  std::vector<Size>& sizes() { return sizes_; }
  // Returns the size to which a step of `sequences` sequences is padded; null if there is none or
  // it has no graph.
  const Size* Find(int64_t sequences, const void* keys) const;

 private:
  bool pads_ = false;
  const void* keys_ = nullptr;
  std::vector<Size> sizes_;  // in ascending order
};

}  // namespace sluice
