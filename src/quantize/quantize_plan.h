// Plans the quantized checkpoint: its quantized layers and all its tensors.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "models/model_config.h"
#include "models/weights.h"
#include "quantize/quantize_checkpoint.h"
#include "quantize/safetensors_writer.h"

namespace sluice {

// A quantized linear layer of the new checkpoint; its weights are rows of a stored matrix.
struct QuantizedModule {
  std::string name;                      // tensor name without suffix, spelled as in the source
  StoredMatrix source;                   // [>= first_row + rows, cols]
  const StoredTensor* tensor = nullptr;  // tensor of the source checkpoint with these weights
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t expert = -1;  // >= 0: index of an expert in a fused tensor, which is written transposed
  int64_t num_experts = 0;
};

// Modules with the same input and, for NVFP4, a common second scale: q, k and v; gate and up; all
// experts of a fused tensor.
struct QuantizedGroup {
  std::vector<QuantizedModule> modules = {};
  std::vector<const kernels::PackedMatrix*> inputs = {};  // matrices whose input statistics apply
                                                          // to the group
  int64_t cols = 0;
};

struct QuantizedLayer {
  int64_t index = 0;
  std::vector<QuantizedGroup> groups = {};
  std::string attention = {};  // for example "model.layers.0.self_attn", spelled as in the source
};

struct QuantizePlan {
  std::vector<QuantizedLayer> layers;
  std::vector<const StoredTensor*> copied;
  std::vector<PlannedTensor> tensors;      // in layer order
  std::vector<std::string> plain_modules;  // modules to list as not quantized in the configuration
  int64_t num_plain = 0;
};

// Returns the name of a module's tensor or, with an underscore, of a fused tensor of all experts.
std::string TensorNameOf(const QuantizedModule& module, std::string_view suffix);
// Returns the name of the tensor with the codes.
std::string DataNameOf(const QuantizeTarget& target, const QuantizedModule& module);

Result<QuantizePlan> PlanQuantization(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const ParameterList& list, const QuantizeOptions& options);

}  // namespace sluice
