// What will be written: which layers are quantized, and all tensors of the new checkpoint.
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

// One quantized linear layer of the new checkpoint: rows of one stored matrix.
struct QuantizedModule {
  std::string name;     // of the tensors, without their suffix, spelled as in the source
  StoredMatrix source;  // [>= first_row + rows, cols]
  const StoredTensor* tensor = nullptr;  // that holds the source
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t expert = -1;  // >= 0: this expert of one tensor of all, which is written transposed
  int64_t num_experts = 0;
};

// Modules that share their input, and for NVFP4 their second scale: q, k and v; gate and up; all
// experts of one tensor.
struct QuantizedGroup {
  std::vector<QuantizedModule> modules = {};
  std::vector<const kernels::PackedMatrix*> inputs = {};  // whose input statistics count
  int64_t cols = 0;
};

struct QuantizedLayer {
  int64_t index = 0;
  std::vector<QuantizedGroup> groups = {};
  std::string attention = {};  // "model.layers.0.self_attn", spelled as in the source
};

struct QuantizePlan {
  std::vector<QuantizedLayer> layers;
  std::vector<const StoredTensor*> copied;
  std::vector<PlannedTensor> tensors;      // in order of the layers
  std::vector<std::string> plain_modules;  // as the configuration will list them
  int64_t num_plain = 0;
};

// The name of a tensor of a module or, with an underscore, of a tensor of all experts.
std::string TensorNameOf(const QuantizedModule& module, std::string_view suffix);
// The tensor of the codes.
std::string DataNameOf(const QuantizeTarget& target, const QuantizedModule& module);

Result<QuantizePlan> PlanQuantization(const ModelConfig& config, const Checkpoint& checkpoint,
                                      const ParameterList& list, const QuantizeOptions& options);

}  // namespace sluice
