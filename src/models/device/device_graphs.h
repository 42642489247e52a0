// CUDA graphs of a decoder's steps, by number of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "models/decoder_spec.h"
#include "models/model.h"

namespace sluice {

// Estimated device memory of the graphs for options.recorded, which the driver allocates during
// capture. CUDA documents only that a graph holds its kernels' parameters. So each operation counts
// as kGraphOperationBytes, the parameter limit of all CUDA versions. Parameters of sluice's kernels
// take some hundred bytes of it; the rest allows for the driver's other data.
inline constexpr int64_t kGraphOperationBytes = 4096;
int64_t GraphBytes(const DecoderSpec& spec, const ModelOptions& options);

// Ownership: owns its graphs, which must be destroyed before the memory used in their steps.
class StepGraphs {
 public:
  // Graphs for steps of up to `sequences` sequences.
  struct Size {
    int64_t sequences = 0;
    std::vector<std::unique_ptr<DeviceGraph>>
        graphs;  // by PaddedStep::level; of all levels or none
  };

  StepGraphs() = default;
  // Creates it without graphs. `keys`: those of the cache that the steps use.
  StepGraphs(const RecordedSteps& steps, const void* keys);

  std::vector<Size>& sizes() { return sizes_; }
  // The size to which a step of `sequences` sequences is padded; null if there is none, or no graph
  // for it.
  const Size* Find(int64_t sequences, const void* keys) const;

 private:
  bool pads_ = false;
  const void* keys_ = nullptr;
  std::vector<Size> sizes_;  // ascending
};

}  // namespace sluice
