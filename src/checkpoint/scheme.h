// The published quantization layouts ("schemes"): which tensors store a linear layer's weight, and
// how. Code outside src/checkpoint/ does not depend on the names that a tool uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "tensor/activation_format.h"
#include "tensor/encode_rows.h"
#include "tensor/stored_matrix.h"

namespace sluice {

// How a linear layer's weight is stored.
struct StoredLinear {
  StoredMatrix matrix;
  ActivationFormat activations;      // how the scheme quantizes the layer's inputs
  std::optional<float> input_scale;  // kFp8Static, kInt8Static: x / input_scale is rounded. kNvfp4:
                                     // the global scale, amax / (6 * 448).
  // The encoding to which unquantized values are rounded while loading; null: they are not rounded.
  // Points to an object that is never destroyed.
  const Encoding* rounded_to = nullptr;
  // Owns the array of matrix.input_order; null if there is none.
  std::shared_ptr<const std::vector<int32_t>> input_order;
  // All tensors that belong to the layer; the first contains the data. Used for reports, to release
  // pages, and to find unused tensors.
  std::vector<const StoredTensor*> tensors;
  // How the layer contradicts the configuration's lists of quantized and excluded modules; null if
  // it does not. One warning covers all such layers.
  const char* surprise = nullptr;

  const DataFormat& loaded_format() const {
    return rounded_to == nullptr ? matrix.format : rounded_to->format;
  }
  // Calls Fetch and Release (StoredTensor) for the data of some rows. A transposed matrix is
  // fetched and released as a whole, because each row is spread over all of it.
  void FetchRows(int64_t first, int64_t count) const;
  void ReleaseRows(int64_t first, int64_t count) const;
};

// Checks that every scale of the matrix is finite and positive (scales of NVFP4 groups may be 0).
Status CheckScales(const StoredLinear& linear);

// The scales of an attention layer's FP8 keys and values: value = code * scale.
struct KvScales {
  float k = 1;
  float v = 1;
  bool stored = false;  // false: the checkpoint has no scales, so 1 is used
  std::vector<const StoredTensor*> tensors;
};

// A scheme with the settings of one checkpoint. Thread safety: immutable.
class QuantizationScheme {
 public:
  virtual ~QuantizationScheme() = default;

  // Returns a name for messages: "ModelOpt NVFP4", "compressed-tensors FP8 block", "BF16".
  virtual std::string Name() const = 0;
  // Returns the scheme's name in vLLM's --quantization ("modelopt", "modelopt_fp4", "quark", "fp8",
  // "compressed-tensors", "mxfp4", "gptq", "awq"); "" for plain weights.
  virtual std::string_view Method() const = 0;

  // Returns the format of the module's weight according to the configuration, without reading any
  // tensor. Used for memory plans and for random weights. `module`: "model.layers.0.mlp.gate_proj".
  virtual DataFormat PlannedFormat(std::string_view module) const = 0;
  virtual ActivationFormat PlannedActivations(std::string_view module) const = 0;

  // Returns the module's weight [rows, cols]. The stored tensors determine the format of the
  // weight. The configuration's list of excluded modules is only checked against it. Errors name
  // the tensor, the expected and the found value.
  virtual Result<StoredLinear> Find(const Checkpoint& checkpoint, const std::string& module,
                                    int64_t rows, int64_t cols) const = 0;

  // Returns the weight [rows, cols] of one expert in a fused tensor of all `num_experts` experts.
  // `module`: "....experts.gate_up_proj". The tensor is [experts, rows, cols], or
  // [experts, cols, rows] if `transposed`. nullopt if the checkpoint has no such tensor.
  virtual Result<std::optional<StoredLinear>> FindFusedExpert(const Checkpoint& checkpoint,
                                                              const std::string& module,
                                                              int64_t expert, int64_t num_experts,
                                                              int64_t rows, int64_t cols,
                                                              bool transposed) const = 0;

  // Whether the configuration asks for an FP8 KV cache.
  virtual bool WantsFp8KvCache() const = 0;
  // Returns the layer's KV scales. `attention`: "model.layers.0.self_attn".
  virtual Result<KvScales> FindKvScales(const Checkpoint& checkpoint,
                                        const std::string& attention) const = 0;

  // Whether this unused tensor is one that the scheme's tools are known to write, although no
  // program needs it ("....q_proj.output_scale").
  virtual bool IsSuperfluous(const Checkpoint& checkpoint, std::string_view tensor) const = 0;
};

// Returns the scheme of the checkpoint in `folder`, whose config.json is `config`; plain weights if
// no configuration file names a method. An unknown method, algorithm or key that affects results is
// an error that names it.
Result<std::shared_ptr<const QuantizationScheme>> LoadScheme(const std::filesystem::path& folder,
                                                             const json::Value& config);
// Like LoadScheme, from config.json only.
Result<std::shared_ptr<const QuantizationScheme>> ParseScheme(const json::Value& config);
// Checks --quantization against the checkpoint's scheme. For a quantized checkpoint, the option is
// an assertion: returns an error if the scheme is different.
Status CheckQuantizationOption(const QuantizationScheme& scheme, std::string_view option);

// Formats to which unquantized weights are rounded while loading: names from LoadQuantizationNames,
// or "".
struct LoadQuantization {
  std::string weights;  // --quantization: for linear layers, except the head and routers
  std::string head;     // --head-format: for the head and, if tied, the embedding

  bool empty() const { return weights.empty() && head.empty(); }
  bool operator==(const LoadQuantization&) const = default;
};

// Returns "fp8, int8, ...".
std::string LoadQuantizationNames();
// Returns `stored`, with its unquantized weights rounded to the formats in `wanted`. For a
// quantized checkpoint, checks `wanted.weights` with CheckQuantizationOption. kInvalidArgument for
// an unknown name.
Result<std::shared_ptr<const QuantizationScheme>> QuantizeAtLoad(
    std::shared_ptr<const QuantizationScheme> stored, const LoadQuantization& wanted,
    bool tied_head);

// The scheme of weights that are stored as F32, F16 or BF16.
std::shared_ptr<const QuantizationScheme> PlainScheme(ElementType dtype);

}  // namespace sluice
