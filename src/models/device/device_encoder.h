// An encoder on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/device_linear.h"
#include "models/device/device_encoder_step.h"
#include "models/device/device_encoder_weights.h"
#include "models/encoder/encoder_spec.h"
#include "models/model.h"

namespace sluice {

// Byte offsets of a step's arrays, aligned to 256.
struct EncoderWorkspace {
  int64_t residual = 0;         // F32 [rows, hidden]
  int64_t delta = 0;            // F32 [rows, hidden]: what the last sub-layer adds to the residual
  int64_t inputs = 0;           // BF16 [rows, hidden]: of the next product
  int64_t qkv = 0;              // BF16 [rows, 3 * hidden]
  int64_t q = 0;                // BF16 [rows, hidden]
  int64_t attended = 0;         // BF16 [rows, hidden]
  int64_t wanted_residual = 0;  // F32 [logit rows, hidden]: of the rows whose results are wanted
  int64_t wanted_attended = 0;  // BF16 [logit rows, hidden]
  int64_t cos_sin = 0;          // F32 [rows, head_dim], where positions are rotary
  int64_t window_cos_sin = 0;   // the same of layers with a window
  int64_t mlp_rows = 0;         // rows that go through the MLP at once
  int64_t inner = 0;            // BF16 [mlp_rows, intermediate], twice where the MLP has a gate
  int64_t activated = 0;        // BF16 [mlp_rows, intermediate]
  int64_t step_inputs = 0;
  int64_t linear_scratch = 0;
  int64_t linear_counters = 0;  // U32 [kMostSplitTiles], zeros between products
  int64_t total_bytes = 0;
  std::vector<ArrayGap> gaps;

  // `scratch_bytes`: of products. `keeps_apart`: as ArrayCutter.
  EncoderWorkspace(const EncoderSpec& spec, const ModelOptions& options, int64_t scratch_bytes,
                   bool keeps_apart);
};

// Every slice of a step has to be a whole sequence; one step is in flight at a time. Classifiers'
// scores are made on the host, of the rows behind the last norm. Ownership: the device and the
// memory of weights and workspace outlive it.
class DeviceEncoder final : public Model {
 public:
  struct Parts {
    Device& device;
    const device::DeviceKernels& kernels;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<device::DeviceLinear> linear;
    DeviceEncoderWeights weights;
    EncoderWorkspace layout;
    std::byte* workspace;
    DeviceEncoderStep inputs;
    ClassifierWeights classifier;  // empty where nothing is classified
  };

  DeviceEncoder(ModelConfig config, const ModelOptions& options, const EncoderSpec& spec,
                Parts parts);
  ~DeviceEncoder() override;

  // Lets the products' kernels be chosen by measuring them, where there is a choice. To be called
  // before the first step.
  Status Tune();

  void PrepareLogits(std::span<float> results) override;
  void Forward(ThreadPool& threads, const StepInput& input, KvCache& cache,
               float* results) override;

 private:
  using Layer = DeviceEncoderLayerWeights;
  // Of the step that is being enqueued.
  struct Rows {
    float* residual = nullptr;
    uint16_t* attended = nullptr;
    int64_t count = 0;
  };

  template <typename T = void>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(parts_.workspace + offset);
  }
  bool classifies() const { return !parts_.classifier.out.empty(); }
  // Whether scores are made of means.
  bool TakesMeans() const { return spec_.classifies_mean && classifies(); }

  void Embed(int64_t rows);
  void FillRopeTable(const float* frequencies, int64_t rows, int64_t cos_sin);
  // The next product's inputs: the norm of the residual and of `delta`, where that is not null. The
  // residual becomes the norm where `keeps_norm`, else the sum.
  void Norm(const DeviceLayerNorm& norm, const Rows& rows, const float* delta, bool keeps_norm);
  device::LinearArgs ProductOf(const DeviceLinearWeights& weights, const void* x, int64_t rows,
                               void* y, ElementType y_type) const;
  void Multiply(const DeviceLinearWeights& weights, const void* x, int64_t rows, void* y,
                ElementType y_type) {
    parts_.linear->Run(*parts_.stream, ProductOf(weights, x, rows, y, y_type));
  }
  // From the norm's result to what the rows attend to.
  void Attend(const Layer& layer, bool has_window, const kernels::KvCacheView& cache,
              const Rows& rows);
  // Behind the last attention no row depends on another.
  Rows KeepWantedRows(const Rows& rows, int64_t wanted);
  // The output projection and the MLP, each with its norm before it or behind the sum. Norms that
  // stand before leave the MLP's results in `delta`.
  void RunLayerEnd(const Layer& layer, const Rows& rows);
  void Activate(int64_t rows);
  Rows RunLayers(const StepInput& input, const KvCache& cache);

  ModelOptions options_;
  EncoderSpec spec_;
  Parts parts_;
  void* pinned_results_ = nullptr;
  std::vector<float> hidden_;   // the rows that scores are made of, or empty
  std::vector<float> scratch_;  // as many
};

}  // namespace sluice
