// Weight matrices in every format, on the device and as exact values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/checks/checked_device.h"

namespace sluice::checks {

struct WeightFormat {
  const char* name;
  ElementType type;
  device::GroupScales group_type = device::GroupScales::kNone;
  int group = 0;
  int block_rows = 0;
  bool has_row_scales = false;
  // Whether inputs are E4M3 with row scales, not BF16.
  bool e4m3_inputs = false;
  // Whether inputs are NVFP4 elements stored in BF16 (RowScale::kNvF4), with row scales.
  bool nvf4_inputs = false;
  // Whether inputs are MXFP4 elements stored in BF16 (RowScale::kMxF4).
  bool mxf4_inputs = false;
  // Whether the kernels support it although no checkpoint whose speed is measured uses it.
  bool is_only_checked = false;

  double bits_per_weight() const;
};
// Returns BF16, FP8 (with BF16 and E4M3 inputs), FP8 in blocks of 128 x 128 and of 8 x 32, INT8,
// INT4 in groups of 128 and of 32, NVFP4 (with BF16 and NVFP4 inputs), and MXFP4 (with BF16 and
// MXFP4 inputs).
std::span<const WeightFormat> WeightFormats();

// How elements are generated.
//   kIntegers: small integers, with scales that are powers of two. Every sum of products with small
//   integers is exact in F32, in any order, and also in narrower sums of tensor cores. So there is
//   a single correct result, and a wrong index is detected.
//   kFree: all codes, and scales of both signs.
enum class NumberKind { kIntegers, kFree };
const char* NumberKindName(NumberKind kind);

// Contains `experts` matrices [n, k] of one format, one after another in memory.
class TestWeights {
 public:
  TestWeights(const WeightFormat& format, NumberKind kind, int64_t experts, int64_t n, int64_t k);

  // Copies the matrices to the device. The strides between experts are: bytes of codes, bytes of
  // group scales, and elements of row scales.
  device::Weights Upload(CaseMemory& memory) const;
  int64_t codes_stride() const;
  int64_t group_scales_stride() const;
  int64_t row_scales_stride() const { return format_.has_row_scales ? n_ : 0; }

  // Sets the same row scale for all rows, or for the first `rows` rows. REQUIRES: a format with row
  // scales.
  void SetRowScales(float scale);
  void SetRowScales(float scale, int64_t rows);
  // Makes a weight NaN by its code or by its group's scale, if the format has such codes or scales.
  void SetNan(int64_t row, int64_t k);

  // Decodes row `row` of an expert, without its row scale, to out [k].
  void DecodeRow(int64_t expert, int64_t row, std::vector<double>& out) const;
  double RowScale(int64_t expert, int64_t row) const;
  // Returns the number of partial sums over k that are scaled separately, each of which adds a
  // rounding.
  int64_t scaled_sums() const;

 private:
  double GroupScale(int64_t expert, int64_t row, int64_t group) const;
  size_t WordAt(int64_t expert, int64_t row, int64_t group) const;  // index in words_
  int64_t GroupsOfRow() const;
  size_t GroupByteAt(int64_t expert, int64_t row, int64_t group) const;  // index in group_bytes_

  WeightFormat format_;
  int64_t experts_, n_, k_;
  std::vector<uint8_t> codes_;
  std::vector<uint8_t> group_bytes_;  // kE4M3, kE8M0
  std::vector<float> block_scales_;   // kBlock
  std::vector<uint32_t> words_;       // kWithZeros
  std::vector<float> row_scales_;
};

// Inputs [m, k] on the device and as exact values.
struct TestInputs {
  std::vector<double> values;  // [m, k], without their scales
  std::vector<float> scales;   // [m]; E4M3 and NVFP4 only
  bool is_mxf4 = false;
  const void* data = nullptr;
  const float* device_scales = nullptr;
  ElementType type = ElementType::kBF16;
};
// `same_scale`: the scale of all rows, if they have scales; 0: each row has its own.
TestInputs MakeInputs(CaseMemory& memory, const WeightFormat& format, NumberKind kind, int64_t m,
                      int64_t k, float same_scale = 0);

}  // namespace sluice::checks
