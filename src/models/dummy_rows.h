// Generates random tensors for --load-format dummy. Device kernels generate the same elements
// (RandomCodesArgs and RandomScalesArgs of kernels/cuda/device_kernels.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/stored_matrix.h"

namespace sluice {

// Returns a tensor's seed, derived from its name and the model's seed.
uint64_t DummySeed(std::string_view name, uint64_t seed);

// Factors for random tensors of a format with `cols` elements per row, chosen so that values have a
// standard deviation of 1 / sqrt(cols).
struct DummyNumbers {
  float plain_scale = 0;    // unquantized elements are uniform 16-bit integers times this factor
  float scale = 0;          // scale of codes with F32 scales
  uint8_t scale_power = 0;  // scale of codes with E8M0 scales
  float second_scale = 1;   // second scale of formats with E4M3 scales, which are random

  static DummyNumbers For(const DataFormat& format, int64_t cols);
};

// Writes a random bias to out [count].
void FillDummyBias(uint64_t tensor_seed, int64_t count, float* out);

// Generates chunks of random rows in any format, to be packed like stored rows.
class RandomRows {
 public:
  RandomRows(const DataFormat& format, int64_t cols);

  int64_t row_bytes() const { return cols_ * BitsPerElement(format_.type) / 8; }

  // Returns rows [first_row, first_row + rows) of the tensor. Valid until the next call.
  StoredMatrix Fill(ThreadPool& pool, uint64_t tensor_seed, int64_t first_row, int64_t rows);

 private:
  void FillOne(uint64_t seed, int64_t row, uint8_t* out) const;
  void FillScales(uint64_t seed, int64_t first_row, StoredMatrix& matrix);

  DataFormat format_;
  int64_t cols_ = 0;
  DummyNumbers numbers_;
  std::vector<uint8_t> data_, scales_;
};

}  // namespace sluice
