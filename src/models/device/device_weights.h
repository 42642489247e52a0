// The parameters of a decoder on a device: their offsets in one allocation, and the kernels'
// arguments for them.
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

// The place of a matrix: offsets in bytes in the weights' memory.
struct DeviceMatrixPlace {
  DataFormat format;  // BF16 without scales, or a narrow format that kernels expand
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t whole_rows = 0;  // of the matrix over all ranks of a layer
  // Block scales: number of rows per block, the checkpoint's or a divisor of it, so that no block
  // spans two parts of the matrix or two ranks. INT4: 1.
  int64_t block_rows = 0;
  int64_t codes = 0;
  std::optional<int64_t> group_scales = {};
  std::optional<int64_t> row_scales = {};
  std::optional<int64_t> input_order = {};  // of INT4: I32 [cols]
  // Row scales that are equal within each of a few parts of the rows; known after the upload.
  std::vector<device::ScaledPart> scaled_parts = {};
  int64_t total_bytes = 0;  // counted in the plan

  int64_t row_bytes() const { return cols * BitsPerElement(format.type) / 8; }
  // Elements along k per group or block scale, and number of such scales per row; 0 if there are
  // none. An INT4 row scale counts as a single group.
  int64_t group_size() const;
  int64_t groups() const;
  int64_t group_scale_bytes() const;
  bool has_nvf4_scales() const;  // E4M3, in the order of kernels/cuda/nvf4_scales.h
  device::Weights At(std::byte* memory) const;
  const int32_t* InputOrderAt(const std::byte* memory) const;  // null if there is none
};

// Offsets of all parameters. Consecutive matrices of equal shape and format, such as experts, have
// a constant stride.
class DeviceWeightLayout {
 public:
  // `formats`: the format of each matrix of the list (PackedFormat with BF16). kUnsupported names a
  // matrix that no kernel supports, and the reason. `rope_tables`: see DecoderSpec. `keeps_apart`:
  // see ArrayCutter.
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
  std::vector<int64_t> vectors_;             // of F32 vectors, in list order
  int64_t rope_frequencies_ = 0;             // F32 RoPE tables, contiguous
  int64_t total_bytes_ = 0;
  std::vector<ArrayGap> gaps_;
};

// Finds parameters by their targets in the list. The constructor's arguments outlive it.
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
  // REQUIRES: the matrix is stored in BF16.
  const uint16_t* Bf16(const kernels::PackedMatrix& target) const;
  // Null if the model does not have the vector.
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

  // Whether rows are rounded to codes with scales.
  bool is_rounded() const {
    return type == ElementType::kF8E4M3 || row_scale == device::RowScale::kNvF4;
  }
  // Whether a number's rounding depends on the rest of its row.
  bool RoundsWholeRows() const { return row_scale != device::RowScale::kStatic; }
  friend bool operator==(const DeviceInputs&, const DeviceInputs&) = default;
};

struct DeviceLinearWeights {
  device::Weights matrix = {};
  const float* bias = nullptr;
  DeviceInputs inputs = {};
  // [k] on the device: order of inputs in the matrix's columns; null: unchanged.
  const int32_t* input_order = nullptr;
  int lora_layer = -1;  // LinearWeights::lora_layer; for experts ExpertWeights::lora_layer
};

// The same linear layer of every expert.
struct DeviceExpertWeights {
  DeviceLinearWeights first;                          // its bias: of all experts, [experts, out]
  int64_t codes_stride = 0, group_scales_stride = 0;  // bytes from one expert to the next
  int64_t row_scales_stride = 0;                      // elements
};

// The weights in a program's tables, on the device.
struct DeviceProgramWeights {
  std::vector<DeviceLinearWeights> linears;
  std::vector<DeviceExpertWeights> experts;
  std::vector<const float*> vectors;
  std::vector<float> first_numbers;  // first number of each vector, on the host; 1 if it is empty
  std::vector<device::Weights> tables;
  const float* rope_frequencies = nullptr;  // the tables, contiguous

  const DeviceInputs& InputsOf(const program::Reader& reader) const;
};

// How inputs of products are rounded if the checkpoint specifies a rounding. BF16 results are
// closer to the unquantized model's; rounding only makes products faster. So the default rounds if
// such products exist: E4M3 from compute capability 8.9, and NVFP4 from 10.0 with the vendor's
// library (not for experts, nor with our own kernels only). `checkpoint` rounds to NVFP4 on all
// devices; our own kernels read NVFP4 inputs as well as others.
struct DeviceRounding {
  bool e4m3 = false;
  bool nvf4 = false;          // inputs of dense layers
  bool nvf4_experts = false;  // of experts

  static DeviceRounding For(const ModelOptions& options, const DeviceInfo& device);
};

// Places the weights in the program's tables, whose targets are in `list`. Does not access the
// targets' data; the format of their inputs may be filled in later.
DeviceProgramWeights PlaceWeights(const program::Program& program, const ParameterList& list,
                                  const DeviceWeightLayout& layout, const DeviceRounding& rounding,
                                  std::byte* memory);

}  // namespace sluice
