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

// One matrix: bytes from the begin of the weights' memory.
struct DeviceMatrixPlace {
  DataFormat format;  // BF16 without scales, or a narrow format that kernels expand
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t whole_rows = 0;  // of the matrix that all ranks of a layer hold together
  // Scales of blocks: the rows that one covers, the checkpoint's number or a divisor of it, so that
  // no block spans two parts of the matrix or two ranks. INT4: 1.
  int64_t block_rows = 0;
  int64_t codes = 0;
  std::optional<int64_t> group_scales = {};
  std::optional<int64_t> row_scales = {};
  std::optional<int64_t> input_order = {};  // of INT4: I32 [cols]
  // Scales that are one number for each of a few parts of the rows; known after the
  // upload.
  std::vector<device::ScaledPart> scaled_parts = {};
  int64_t total_bytes = 0;  // that the plan counts for it

  int64_t row_bytes() const { return cols * BitsPerElement(format.type) / 8; }
  // Elements of k that a scale of a group or block covers, and such scales in a row of them; 0
  // where there are none. An INT4 scale of a row is one of a group that is as long.
  int64_t group_size() const;
  int64_t groups() const;
  int64_t group_scale_bytes() const;
  bool has_nvf4_scales() const;  // E4M3 ones, in the order of kernels/cuda/nvf4_scales.h
  device::Weights At(std::byte* memory) const;
  const int32_t* InputOrderAt(const std::byte* memory) const;  // null where there is none
};

// Where everything lies. Matrices of equal shape and format that follow each other in the list, as
// those of experts do, are equally far apart.
class DeviceWeightLayout {
 public:
  // `formats`: what each matrix of the list makes together (PackedFormat with BF16). kUnsupported
  // names a matrix that no kernel takes, and why. `rope_tables`: as DecoderSpec's. `keeps_apart`:
  // as ArrayCutter.
  static Result<DeviceWeightLayout> For(const std::vector<std::vector<float>>& rope_tables,
                                        const ParameterList& list,
                                        const std::vector<DataFormat>& formats,
                                        bool keeps_apart = false);

  const DeviceMatrixPlace& matrix(size_t index) const { return matrices_[index]; }
  // Stores what was uploaded: DeviceSink::scaled_parts.
  void SetScaledParts(std::vector<std::vector<device::ScaledPart>> parts);
  int64_t vector(size_t index) const { return vectors_[index]; }
  int64_t rope_frequencies() const { return rope_frequencies_; }
  int64_t total_bytes() const { return total_bytes_; }
  const std::vector<ArrayGap>& gaps() const { return gaps_; }

 private:
  std::vector<DeviceMatrixPlace> matrices_;  // as in the list
  std::vector<int64_t> vectors_;             // of F32, as in the list
  int64_t rope_frequencies_ = 0;             // F32, the rope tables one after the other
  int64_t total_bytes_ = 0;
  std::vector<ArrayGap> gaps_;
};

// Finds parameters by the targets that the list gives them. What it is made of outlives it.
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
  // REQUIRES: it is kept in BF16.
  const uint16_t* Bf16(const kernels::PackedMatrix& target) const;
  // Null for a vector that the model does not have.
  const float* Vector(const std::vector<float>& target) const;
  const float* RopeFrequencies() const;

 private:
  const DeviceWeightLayout& layout_;
  std::byte* memory_;
  std::map<const kernels::PackedMatrix*, size_t> matrices_;
  std::map<const std::vector<float>*, size_t> vectors_;
};

// How rows are written that a product reads.
struct DeviceInputs {
  ElementType type = ElementType::kBF16;
  device::RowScale row_scale = device::RowScale::kStatic;
  float static_scale = 1;

  // Whether each row has a scale, as rounded ones do.
  bool is_rounded() const {
    return type == ElementType::kF8E4M3 || row_scale == device::RowScale::kNvF4;
  }
  // Whether a number's rounding depends on others of its row.
  bool RoundsWholeRows() const { return row_scale != device::RowScale::kStatic; }
  friend bool operator==(const DeviceInputs&, const DeviceInputs&) = default;
};

struct DeviceLinearWeights {
  device::Weights matrix = {};
  const float* bias = nullptr;
  DeviceInputs inputs = {};
  // [k] on the device, or null: the inputs in the order of the matrix's columns.
  const int32_t* input_order = nullptr;
  int lora_layer = -1;  // as LinearWeights::lora_layer, of experts ExpertWeights::lora_layer
};

// The same linear layer of every expert.
struct DeviceExpertWeights {
  DeviceLinearWeights first;                          // whose bias is that of all: [experts, out]
  int64_t codes_stride = 0, group_scales_stride = 0;  // bytes from one expert to the next
  int64_t row_scales_stride = 0;                      // elements
};

// What a program's tables name, on the device.
struct DeviceProgramWeights {
  std::vector<DeviceLinearWeights> linears;
  std::vector<DeviceExpertWeights> experts;
  std::vector<const float*> vectors;
  std::vector<float> first_numbers;  // of the vectors, on the host; 1 where it has none
  std::vector<device::Weights> tables;
  const float* rope_frequencies = nullptr;  // the tables one after the other

  const DeviceInputs& InputsOf(const program::Reader& reader) const;
};

// To which numbers inputs of products are rounded where the checkpoint says so. In bfloat16 a
// result is nearer to the unquantized model's; what rounding gains is the speed of narrower
// products. So the default rounds where there are such: E4M3 since compute capability 8.9, and
// NVFP4 since 10.0 by the library (not for experts, nor by own kernels alone). `checkpoint` rounds
// to NVFP4 everywhere, which own kernels read as well as other numbers.
struct DeviceRounding {
  bool e4m3 = false;
  bool nvf4 = false;          // inputs of dense layers
  bool nvf4_experts = false;  // of experts

  static DeviceRounding For(const ModelOptions& options, const DeviceInfo& device);
};

// What the program's tables name, whose targets are those of `list`; the matrices that they point
// to are not looked at, and what is said of their inputs may not be filled in yet.
DeviceProgramWeights PlaceWeights(const program::Program& program, const ParameterList& list,
                                  const DeviceWeightLayout& layout, const DeviceRounding& rounding,
                                  std::byte* memory);

}  // namespace sluice
