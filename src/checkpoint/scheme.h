// The published quantization layouts ("schemes"): which tensors hold a linear layer's weight, and
// how. Nothing outside src/checkpoint/ knows a tool's names.
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

// The weight of one linear layer in the files.
struct StoredLinear {
  StoredMatrix matrix;
  ActivationFormat activations;      // what the scheme does to the layer's inputs
  std::optional<float> input_scale;  // kFp8Static, kInt8Static: x / input_scale is rounded. kNvfp4:
                                     // the global scale, amax / (6 * 448)
  // What plain values are rounded to while they are loaded; null where they stay as they are
  // stored. Lives as long as the program.
  const Encoding* rounded_to = nullptr;
  // What matrix.input_order points to; null where it is.
  std::shared_ptr<const std::vector<int32_t>> input_order;
  // All tensors that belong to the layer; the first holds the data. For reports, for releasing
  // pages, and to know which tensors were used.
  std::vector<const StoredTensor*> tensors;
  // How the layer contradicts the configuration's lists, for one warning on all such layers; null
  // where it does not.
  const char* surprise = nullptr;

  const DataFormat& loaded_format() const {
    return rounded_to == nullptr ? matrix.format : rounded_to->format;
  }
  // Fetch and Release (StoredTensor) of the data of some rows: of a transposed matrix, whose rows
  // lie all over it, of all of it.
  void FetchRows(int64_t first, int64_t count) const;
  void ReleaseRows(int64_t first, int64_t count) const;
};

// Checks every scale of the matrix: finite and above 0 (scales of NVFP4 groups may be 0), no NaN.
Status CheckScales(const StoredLinear& linear);

// The scales of an attention layer's FP8 keys and values: value = code * scale.
struct KvScales {
  float k = 1;
  float v = 1;
  bool stored = false;  // false: the checkpoint has none and 1 is meant
  std::vector<const StoredTensor*> tensors;
};

// One scheme with the settings of one checkpoint. Thread safety: constant.
class QuantizationScheme {
 public:
  virtual ~QuantizationScheme() = default;

  // "ModelOpt NVFP4", "compressed-tensors FP8 block", "BF16": for people.
  virtual std::string Name() const = 0;
  // The word of vLLM's --quantization for it ("modelopt", "modelopt_fp4", "quark", "fp8",
  // "compressed-tensors", "mxfp4", "gptq", "awq"); "" for plain weights.
  virtual std::string_view Method() const = 0;

  // How the configuration says the module's weight is stored: for plans and random weights, made
  // before any tensor is seen. `module`: "model.layers.0.mlp.gate_proj".
  virtual DataFormat PlannedFormat(std::string_view module) const = 0;
  virtual ActivationFormat PlannedActivations(std::string_view module) const = 0;

  // The weight [rows, cols] of the module. What counts is what is stored; the configuration's list
  // of excluded modules is only checked against it. Errors name the tensor, what was expected and
  // what was found.
  virtual Result<StoredLinear> Find(const Checkpoint& checkpoint, const std::string& module,
                                    int64_t rows, int64_t cols) const = 0;

  // The weight [rows, cols] of one expert in a fused tensor of all `num_experts` experts,
  // `module` = "....experts.gate_up_proj": [experts, rows, cols], or [experts, cols, rows] where
  // `transposed`. nullopt where the checkpoint has no such fused tensor.
  virtual Result<std::optional<StoredLinear>> FindFusedExpert(const Checkpoint& checkpoint,
                                                              const std::string& module,
                                                              int64_t expert, int64_t num_experts,
                                                              int64_t rows, int64_t cols,
                                                              bool transposed) const = 0;

  // Whether the configuration asks for an FP8 KV cache.
  virtual bool WantsFp8KvCache() const = 0;
  // `attention`: "model.layers.0.self_attn".
  virtual Result<KvScales> FindKvScales(const Checkpoint& checkpoint,
                                        const std::string& attention) const = 0;

  // Whether a tensor that no parameter used is one that the scheme is known to write and no reader
  // needs ("....q_proj.output_scale").
  virtual bool IsSuperfluous(const Checkpoint& checkpoint, std::string_view tensor) const = 0;
};

// The scheme of the checkpoint in `folder`, whose config.json is `config`: plain weights where no
// configuration names another. An unknown method, algorithm or key that changes numbers is refused
// by name.
Result<std::shared_ptr<const QuantizationScheme>> LoadScheme(const std::filesystem::path& folder,
                                                             const json::Value& config);
// The same of what config.json says alone.
Result<std::shared_ptr<const QuantizationScheme>> ParseScheme(const json::Value& config);
// For a quantized checkpoint `--quantization` is an assertion: an error if the checkpoint's scheme
// is another one.
Status CheckQuantizationOption(const QuantizationScheme& scheme, std::string_view option);

// What plain weights become while they are loaded: words of LoadQuantizationNames, or "".
struct LoadQuantization {
  std::string weights;  // --quantization: the linear layers but head and routers
  std::string head;     // --head-format: with a tied head the embedding, too

  bool empty() const { return weights.empty() && head.empty(); }
  bool operator==(const LoadQuantization&) const = default;
};

// "fp8, int8, ...".
std::string LoadQuantizationNames();
// `stored`, with its plain weights rounded as it is wanted. Where the checkpoint is quantized,
// `wanted.weights` is checked by CheckQuantizationOption. kInvalidArgument for what is neither.
Result<std::shared_ptr<const QuantizationScheme>> QuantizeAtLoad(
    std::shared_ptr<const QuantizationScheme> stored, const LoadQuantization& wanted,
    bool tied_head);

// Weights as F32, F16 or BF16.
std::shared_ptr<const QuantizationScheme> PlainScheme(ElementType dtype);

}  // namespace sluice
