// The step inputs that operators on a device read.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/device_kernels.h"
#include "models/decoder_spec.h"
#include "models/program/op.h"

namespace sluice {

// The rows of images in a step.
struct DeviceImageRows {
  const int32_t* rows = nullptr;    // index of each image row in the step
  const int32_t* places = nullptr;  // slots of their values: StoredImageRow::place
  int64_t count = 0;
};

// For models with indexers: the rows, with block tables of the cache's only group.
struct DeviceIndexRows {
  const device::IndexRow* rows = nullptr;
  const int32_t* tables = nullptr;
  int64_t max_context = 0;  // maximum context of any sequence
};

// Inputs of the last step that was sent, on the device.
class DeviceStepView {
 public:
  virtual ~DeviceStepView() = default;
  virtual const int32_t* tokens() const = 0;
  virtual const int32_t* positions() const = 0;
  virtual const int32_t* types() const { return nullptr; }  // null: all tokens have type 0
  virtual const int32_t* logit_rows() const = 0;
  virtual const int64_t* slots(int64_t group) const = 0;
  // Sets the items, slices and tables of an attention. The caller sets the other members.
  virtual device::AttentionArgs Attention(const program::Attend& op, const AttentionSpec& spec,
                                          int64_t group) const = 0;
  // For decoders with ranks or adapters: see DeviceStepInputs.
  virtual std::span<const int64_t> embeddings() const { return {}; }
  virtual const int32_t* embedding_places() const { return nullptr; }
  virtual int64_t num_own_tokens() const { return 0; }
  virtual const int32_t* own_token_rows() const { return nullptr; }
  // Returns the slots of the sequences' states. REQUIRES: the model keeps states.
  virtual device::StateSlices states() const { return {}; }
  virtual DeviceIndexRows index_rows() const { return {}; }
  virtual bool has_adapters() const { return false; }
  virtual device::AddLoraArgs Adapters(bool /*of_logit_rows*/) const { return {}; }
  virtual const int32_t* all_tokens() const { return nullptr; }
  // Used only by decoders that take images; see DeviceStepInputs.
  virtual const int32_t* rope_positions() const { return nullptr; }
  virtual DeviceImageRows image_rows() const { return {}; }
  // For drafting heads: StepInput::hidden_rows.
  virtual const int32_t* hidden_rows() const { return nullptr; }
};

}  // namespace sluice
