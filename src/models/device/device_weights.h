// The offsets of a decoder's parameters in one allocation on a device, and the kernels' arguments
// for them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/device_pool.h"
#include "kernels/cuda/device_kernels.h"
#include "models/decoder_spec.h"
#include "models/model.h"
#include "models/program/program.h"
#include "models/weights.h"

namespace sluice {

// The location of a matrix: byte offsets in the memory of the weights.
struct DeviceMatrixPlace {
  DataFormat format;  // BF16 without scales, or a narrow format that kernels expand
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t whole_rows = 0;  // number of rows of the matrix over all ranks that divide the layer
  // For block scales: number of rows per block. It is the checkpoint's block height or a divisor of
  // it; no block spans two parts of the matrix or two ranks. For INT4: 1.
  int64_t block_rows = 0;
  int64_t codes = 0;
  std::optional<int64_t> group_scales = {};
  std::optional<int64_t> row_scales = {};
  // Only for INT4: offset of the order of inputs, I32 [cols].
  std::optional<int64_t> input_order = {};
  // Parts of the rows in which all row scales are equal; known after the upload.
  std::vector<device::ScaledPart> scaled_parts = {};
  int64_t total_bytes = 0;  // bytes as counted in the memory plan

  int64_t row_bytes() const { return cols * BitsPerElement(format.type) / 8; }
  // Returns the number of elements along k per group or block scale, and the number of such scales
  // per row; 0 if the format has none. A row scale of INT4 counts as a single group.
  int64_t group_size() const;
  int64_t groups() const;
  int64_t group_scale_bytes() const;
  // Whether it has E4M3 scales, in the order of kernels/cuda/nvf4_scales.h.
  bool has_nvf4_scales() const;
  device::Weights At(std::byte* memory) const;
  // Null if inputs are in their original order.
  const int32_t* InputOrderAt(const std::byte* memory) const;
};

// Offsets of all parameters. Consecutive matrices of equal shape and format, such as experts, have
// a constant stride.
class DeviceWeightLayout {
 public:
  // `formats`: the format of each matrix of the list, as PackedFormat returns it for BF16.
  // kUnsupported names a matrix that no kernel supports, and the reason. `rope_tables`: as in
  // DecoderSpec. `keeps_apart`: as in ArrayCutter.
  static Result<DeviceWeightLayout> For(const std::vector<std::vector<float>>& rope_tables,
                                        const ParameterList& list,
                                        const std::vector<DataFormat>& formats,
                                        bool keeps_apart = false);

  const DeviceMatrixPlace& matrix(size_t index) const { return matrices_[index]; }
  // Stores the scaled parts found during upload: DeviceSink::scaled_parts.
  void SetScaledParts(std::vector<std::vector<device::ScaledPart>> parts);
  int64_t vector(size_t index) const { return vectors_[index]; }
  int64_t rope_frequencies() const { return rope_frequencies_; }
  int64_t total_bytes() const { return total_bytes_; }
  const std::vector<ArrayGap>& gaps() const { return gaps_; }

 private:
  std::vector<DeviceMatrixPlace> matrices_;  // in list order
  std::vector<int64_t> vectors_;             // offsets of F32 vectors, in list order
  int64_t rope_frequencies_ = 0;             // F32 RoPE tables, contiguous
  int64_t total_bytes_ = 0;
  std::vector<ArrayGap> gaps_;
};

// Finds the address of a parameter on the device. The key is the host object that ParameterList
// names as the parameter's target. `layout`, `memory` and the targets of `list` must outlive this
// object.
class DeviceParameterPlaces {
 public:
  DeviceParameterPlaces(const ParameterList& list, const DeviceWeightLayout& layout,
                        std::byte* memory);

  bool Has(const kernels::PackedMatrix& target) const { return matrices_.contains(&target); }
  const DeviceMatrixPlace& PlaceOf(const kernels::PackedMatrix& target) const {
    return layout_.matrix(matrices_.at(&target));
  }
  device::Weights Matrix(const kernels::PackedMatrix& target) const {
    return PlaceOf(target).At(memory_);
  }
  const int32_t* InputOrder(const kernels::PackedMatrix& target) const {
    return PlaceOf(target).InputOrderAt(memory_);
  }
  // Returns a matrix's elements. REQUIRES: the matrix is stored in BF16.
  const uint16_t* Bf16(const kernels::PackedMatrix& target) const;
  // Returns a vector's elements; null if the model does not have the vector.
  const float* Vector(const std::vector<float>& target) const;
  const float* RopeFrequencies() const;

 private:
  const DeviceWeightLayout& layout_;
  std::byte* memory_;
  std::map<const kernels::PackedMatrix*, size_t> matrices_;
  std::map<const std::vector<float>*, size_t> vectors_;
};

// The format of a product's input rows.
struct DeviceInputs {
  ElementType type = ElementType::kBF16;
  device::RowScale row_scale = device::RowScale::kStatic;
  float static_scale = 1;

  // Whether rows are rounded, and whether the rounded rows have scales (RowsOut::scales).
  bool is_rounded() const { return has_scales() || row_scale == device::RowScale::kMxF4; }
  bool has_scales() const {
    return type == ElementType::kF8E4M3 || row_scale == device::RowScale::kNvF4;
  }
  // Whether the rounding of an element depends on other elements of its row: on all of them, or for
  // MXFP4 on its group of 32. Ranks exchange parts of such rows in F32, and round the whole rows.
  bool RoundsWholeRows() const { return row_scale != device::RowScale::kStatic; }
  friend bool operator==(const DeviceInputs&, const DeviceInputs&) = default;
};

struct DeviceLinearWeights {
  device::Weights matrix = {};
  const float* bias = nullptr;
  DeviceInputs inputs = {};
  // I32 [k] on the device: the order in which the matrix's columns use inputs; null: the original
  // order.
  const int32_t* input_order = nullptr;
  int lora_layer = -1;  // like LinearWeights::lora_layer or, for experts, ExpertWeights::lora_layer
};

// One linear layer of every expert.
struct DeviceExpertWeights {
  // The weights of the first expert; `bias` contains the biases of all experts, [experts, out].
  DeviceLinearWeights first;
  int64_t codes_stride = 0, group_scales_stride = 0;  // bytes from one expert to the next
  int64_t row_scales_stride = 0;                      // elements from one expert to the next
};

// Device addresses of the weights in a program's tables.
struct DeviceProgramWeights {
  std::vector<DeviceLinearWeights> linears;
  std::vector<DeviceExpertWeights> experts;
  std::vector<const float*> vectors;
  // The first element of each vector, on the host; 1 if the vector is empty.
  std::vector<float> first_numbers;
  std::vector<device::Weights> tables;
  const float* rope_frequencies = nullptr;  // all tables, contiguous

  const DeviceInputs& InputsOf(const program::Reader& reader) const;
};

// How inputs of products are rounded if the checkpoint specifies a rounding. Unrounded BF16 inputs
// give results closer to the unquantized model's; rounding only makes products faster. So the
// default rounds where the device has fast products for the format: E4M3 from compute capability
// 8.9, NVFP4 from 10.0 with the vendor's library (not for experts, and not with our own kernels
// alone), and MXFP4 on AMD's gfx950. `checkpoint` rounds to NVFP4 and MXFP4 on all devices; our own
// kernels read such inputs as well as others.
struct DeviceRounding {
  bool e4m3 = false;
  bool nvf4 = false;          // whether inputs of dense layers are rounded to NVFP4
  bool nvf4_experts = false;  // whether inputs of experts are
  bool mxf4 = false;

  static DeviceRounding For(const ModelOptions& options, const DeviceInfo& device);
};

// The embedding and output head of a model, which a drafting head may share. A head that is tied to
// the embedding has no weights here.
struct DeviceTables {
  device::Weights embedding = {};
  DeviceLinearWeights head = {};
};

// Returns the tables in `weights` that `list` contains.
DeviceTables TablesOf(const DecoderWeights& weights, const ParameterList& list,
                      const DeviceWeightLayout& layout, const DeviceRounding& rounding,
                      std::byte* memory);

// The tables of another model. The program refers to them as the tables of `owner`.
struct SharedTables {
  const DecoderWeights* owner = nullptr;
  DeviceTables tables = {};
};

// Sets the places of the weights in the program's tables. The weights are targets in `list`, or
// `shared`. Does not access the targets' data; the format of their inputs may be set later.
DeviceProgramWeights PlaceWeights(const program::Program& program, const ParameterList& list,
                                  const DeviceWeightLayout& layout, const DeviceRounding& rounding,
                                  std::byte* memory, const SharedTables& shared = {});

}  // namespace sluice
