// The numbers of random tensors, for --load-format dummy. Kernels of devices make the same
// (RandomCodesArgs and RandomScalesArgs of kernels/cuda/device_kernels.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/stored_matrix.h"

namespace sluice {

// The seed of a tensor, from its name and the model's seed.
uint64_t DummySeed(std::string_view name, uint64_t seed);

// The factors of random tensors of a format whose rows hold `cols` numbers: they have a deviation
// of 1 / sqrt(cols).
struct DummyNumbers {
  float plain_scale = 0;    // of plain numbers: a uniform 16-bit integer times this
  float scale = 0;          // of codes, where scales are F32
  uint8_t scale_power = 0;  // the same where they are E8M0
  float second_scale = 1;   // where they are E4M3, and random

  static DummyNumbers For(const DataFormat& format, int64_t cols);
};

// A random bias: out [count].
void FillDummyBias(uint64_t tensor_seed, int64_t count, float* out);

// Makes chunks of random rows in any format, to be packed like stored ones.
class RandomRows {
 public:
  RandomRows(const DataFormat& format, int64_t cols);

  int64_t row_bytes() const { return cols_ * BitsPerElement(format_.type) / 8; }

  // Rows [first_row, first_row + rows) of the tensor. Valid until the next call.
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
