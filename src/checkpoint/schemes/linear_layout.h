// How a published layout stores one quantized linear layer, as data: what the schemes read out of
// their configurations, and what the search for tensors goes by.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/scheme.h"

namespace sluice {

// What stands beside the scales of integers that share words of 32 bits, and in which order.
struct WordLayout {
  Int4Packing packing = Int4Packing::kInputs;
  bool transposed = false;
  std::string_view zero_points = "";  // where format.has_zero_points, or are_symmetric
  // The stored zero points are all 8 (INT4) or 128 (INT8); they are checked, not kept.
  bool are_symmetric = false;
  int zero_point_offset = 0;          // see StoredMatrix
  std::string_view group_index = "";  // I32 [in]: the group of each input
  std::string_view shape = "";        // I64 [2]: out and in
};

struct LinearLayout {
  std::string name;   // "FP8", "NVFP4 weights": for people
  DataFormat format;  // float scales are read in any float type; scale_type is the usual one
  ActivationFormat activations = {};
  // Suffixes of the tensors' names: "<module>.<suffix>", or "<tensor>_<suffix>" for a tensor of all
  // experts. Of several names, one must exist.
  std::string_view data = "weight";
  std::vector<std::string_view> scales = {"weight_scale"};
  std::string_view second_scale = "";               // where format.has_second_scale
  std::vector<std::string_view> input_scales = {};  // empty: the inputs have no stored scale
  std::string_view input_zero_point = "";           // of kInt8Static; absent: 0
  bool stores_divisors = false;  // the second scale and the input scale divide instead of multiply
  bool is_in_words = false;      // codes share words of 32 bits; always of kInt4, also of kI8
  WordLayout words = {};         // where is_in_words
};

// Layouts that several tools write.
LinearLayout Fp8PerTensorLayout();  // weight F8_E4M3, weight_scale, input_scale
LinearLayout Fp8PerRowLayout();     // weight_scale [out], inputs per token
LinearLayout Fp8BlockLayout(int block_rows, int block_cols);
LinearLayout Nvfp4Layout();  // ModelOpt's names
LinearLayout Mxfp4Layout();  // Quark's names

// What the configuration says of one module.
struct ModulePlan {
  const LinearLayout* layout = nullptr;  // null: nothing in the configuration would quantize it
  bool excluded = false;                 // the module's weight is said to be plain
};

// The weight of `module`. What is stored decides whether it is plain or in plan.layout.
Result<StoredLinear> FindStoredLinear(const Checkpoint& checkpoint, const std::string& module,
                                      int64_t rows, int64_t cols, const ModulePlan& plan);

// The weight of one expert in a tensor of all of them (QuantizationScheme::FindFusedExpert).
Result<std::optional<StoredLinear>> FindStoredExpert(const Checkpoint& checkpoint,
                                                     const std::string& module, int64_t expert,
                                                     int64_t num_experts, int64_t rows,
                                                     int64_t cols, bool transposed,
                                                     const ModulePlan& plan);

// The scales of keys and values under all names that tools give them.
Result<KvScales> FindStoredKvScales(const Checkpoint& checkpoint, const std::string& attention);

// Tensors that tools write beside keys' and values' scales and no reader needs: scales of queries
// and of attention probabilities, zero points that are zero.
bool IsSuperfluousScale(const Checkpoint& checkpoint, std::string_view tensor);

// Modules whose weights no tool quantizes, whatever its configuration says: embeddings, norms,
// routers.
bool IsNeverQuantized(std::string_view module);

// The base of all schemes that are a plan for every module.
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
  // What the configuration says of the module.
  virtual ModulePlan PlanOf(std::string_view module) const = 0;

 private:
  ElementType plain_type_;
  bool wants_fp8_kv_cache_;
};

}  // namespace sluice
