// The graphs of a decoder's steps, by how many sequences they are of.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "models/decoder_spec.h"
#include "models/model.h"

namespace sluice {

// About what the graphs of options.recorded take of the device's memory, which the driver allocates
// as they are recorded. All that CUDA's documentation says is that a graph holds the parameters of
// its kernels. So kGraphOperationBytes are counted for each operation: the room that parameters
// have in every version of CUDA. Those of sluice's kernels fill some hundred bytes of it; the rest
// is for what else the driver keeps.
inline constexpr int64_t kGraphOperationBytes = 4096;
int64_t GraphBytes(const DecoderSpec& spec, const ModelOptions& options);

// Ownership: its graphs', which do not outlive the memory of the steps that they were recorded of.
class StepGraphs {
 public:
  // Steps of up to `sequences` sequences.
  struct Size {
    int64_t sequences = 0;
    std::vector<std::unique_ptr<DeviceGraph>>
        graphs;  // by PaddedStep::level; of all levels or none
  };

  StepGraphs() = default;
  // Without graphs. `keys`: of the cache that the steps use.
  StepGraphs(const RecordedSteps& steps, const void* keys);

  std::vector<Size>& sizes() { return sizes_; }
  // That a step of `sequences` sequences is padded to; null where there is none, or no graph of it.
  const Size* Find(int64_t sequences, const void* keys) const;

 private:
  bool pads_ = false;
  const void* keys_ = nullptr;
  std::vector<Size> sizes_;  // ascending
};

}  // namespace sluice
