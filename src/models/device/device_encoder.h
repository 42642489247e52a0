// An encoder on a device: runs the program of an EncoderSpec.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/device_linear.h"
#include "models/device/device_encoder_step.h"
#include "models/device/device_executor.h"
#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"
#include "models/model.h"

namespace sluice {

// Every slice of a step must be a whole sequence; one step is in flight at a time. The host
// computes classifiers' scores from the rows after the last norm. Ownership: the device and the
// memory of weights and workspace outlive it.
class DeviceEncoder final : public Model {
 public:
  struct Parts {
    Device& device;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<device::DeviceLinear> linear;
    std::unique_ptr<DeviceExecutor> executor;
    DeviceEncoderStep inputs;
    ClassifierWeights classifier;  // empty if the model does not classify
  };

  DeviceEncoder(ModelConfig config, const ModelOptions& options, const EncoderSpec& spec,
                Parts parts);
  ~DeviceEncoder() override;

  // Measures products for which several kernels exist, and chooses the fastest. Call before the
  // first step.
  Status Tune() { return parts_.executor->Tune(); }

  void PrepareLogits(std::span<float> results) override;
  void Forward(ThreadPool& threads, const StepInput& input, KvCache& cache,
               float* results) override;

 private:
  bool classifies() const { return !parts_.classifier.out.empty(); }
  // Returns whether scores are computed from the mean of a sequence's rows.
  bool TakesMeans() const { return spec_.classifies_mean && classifies(); }

  ModelOptions options_;
  EncoderSpec spec_;
  Parts parts_;
  void* pinned_results_ = nullptr;
  std::vector<float> hidden_;   // rows from which scores are computed, or empty
  std::vector<float> scratch_;  // scratch memory of the same size as hidden_
};

}  // namespace sluice
