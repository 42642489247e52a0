// Describes as data how a published layout stores a quantized linear layer. The schemes create
// layouts from their configurations. The search for a layer's tensors reads the layouts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/scheme.h"

namespace sluice {

// For integer codes that share 32-bit words: the order of the codes, and the tensors in addition to
// codes and scales.
struct WordLayout {
  Int4Packing packing = Int4Packing::kInputs;
  bool transposed = false;
  std::string_view zero_points = "";  // used if format.has_zero_points or are_symmetric
  // Whether all stored zero points are 8 (INT4) or 128 (INT8). They are checked and then ignored.
  bool are_symmetric = false;
  int zero_point_offset = 0;          // as in StoredMatrix
  std::string_view group_index = "";  // I32 [in]: the group of each input
  std::string_view shape = "";        // I64 [2]: out and in
};

struct LinearLayout {
  std::string name;   // name for messages: "FP8", "NVFP4 weights"
  DataFormat format;  // scales may have any float type; scale_type is the usual one
  ActivationFormat activations = {};
  // Suffixes of tensor names: "<module>.<suffix>", or "<tensor>_<suffix>" for a fused tensor of all
  // experts. If several are listed, exactly one must exist.
  std::string_view data = "weight";
  std::vector<std::string_view> scales = {"weight_scale"};
  std::string_view second_scale = "";               // used if format.has_second_scale
  std::vector<std::string_view> input_scales = {};  // empty if no input scale is stored
  std::string_view input_zero_point = "";           // for kInt8Static; 0 if absent
  bool stores_divisors = false;  // whether the stored second scale and input scale are divisors
  bool is_in_words = false;      // whether codes share 32-bit words: always for kInt4, possible for
                                 // kI8
  WordLayout words = {};         // used if is_in_words
};

// Layouts that several tools write.
LinearLayout Fp8PerTensorLayout();  // weight (F8_E4M3), weight_scale, input_scale
LinearLayout Fp8PerRowLayout();     // weight_scale [out]; inputs are scaled per token
LinearLayout Fp8BlockLayout(int block_rows, int block_cols);
LinearLayout Nvfp4Layout();  // with ModelOpt's tensor names
LinearLayout Mxfp4Layout();  // with Quark's tensor names

// The configuration's settings for one module.
struct ModulePlan {
  const LinearLayout* layout = nullptr;  // null: the configuration does not quantize the module
  // Whether the configuration excludes the module from quantization.
  bool excluded = false;
};

// Returns the weight of `module`. The stored element type determines whether the weight is
// unquantized or has plan.layout.
Result<StoredLinear> FindStoredLinear(const Checkpoint& checkpoint, const std::string& module,
                                      int64_t rows, int64_t cols, const ModulePlan& plan);

// Returns the weight of one expert in a fused tensor (QuantizationScheme::FindFusedExpert).
Result<std::optional<StoredLinear>> FindStoredExpert(const Checkpoint& checkpoint,
                                                     const std::string& module, int64_t expert,
                                                     int64_t num_experts, int64_t rows,
                                                     int64_t cols, bool transposed,
                                                     const ModulePlan& plan);

// Returns the scales of keys and values, under any name that tools use.
Result<KvScales> FindStoredKvScales(const Checkpoint& checkpoint, const std::string& attention);

// Whether a tensor is not needed although tools write it next to the KV scales: scales of queries
// and of attention probabilities, and zero points that are all 0.
bool IsSuperfluousScale(const Checkpoint& checkpoint, std::string_view tensor);

// Returns whether no tool quantizes the module, whatever the configuration contains: embeddings,
// norms, routers.
bool IsNeverQuantized(std::string_view module);

// Base class of schemes that have a plan for every module.
class PlannedScheme : public QuantizationScheme {
 public:
  PlannedScheme(ElementType plain_type, bool wants_fp8_kv_cache)
      : plain_type_(plain_type), wants_fp8_kv_cache_(wants_fp8_kv_cache) {}

  DataFormat PlannedFormat(std::string_view module) const override;
  ActivationFormat PlannedActivations(std::string_view module) const override;
  Result<StoredLinear> Find(const Checkpoint& checkpoint, const std::string& module, int64_t rows,
                            int64_t cols) const override;
  Result<std::optional<StoredLinear>> FindFusedExpert(const Checkpoint& checkpoint,
                                                      const std::string& module, int64_t expert,
                                                      int64_t num_experts, int64_t rows,
                                                      int64_t cols, bool transposed) const override;
  bool WantsFp8KvCache() const override { return wants_fp8_kv_cache_; }
  Result<KvScales> FindKvScales(const Checkpoint& checkpoint,
                                const std::string& attention) const override;
  bool IsSuperfluous(const Checkpoint& checkpoint, std::string_view tensor) const override;

 protected:
  // Returns the configuration's settings for the module.
  virtual ModulePlan PlanOf(std::string_view module) const = 0;

 private:
  ElementType plain_type_;
  bool wants_fp8_kv_cache_;
};

}  // namespace sluice
