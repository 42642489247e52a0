// Statistics of magnitudes on a calibration text: those of the inputs of linear layers, and of keys
// and values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice {

// A histogram of magnitudes, and their maximum.
class InputStatistics {
 public:
  void Add(ThreadPool& pool, const kernels::Activations& x);

  bool empty() const { return count_ == 0; }
  float amax() const { return amax_; }
  // Returns the magnitude that `percentile` percent of the numbers do not exceed. It is rounded up
  // by less than 2 percent, but to at most amax.
  float Percentile(double percentile) const;
  void Merge(const InputStatistics& other);

 private:
  // A bin is an exponent and the 6 highest bits of the mantissa.
  static constexpr int kShift = 17;
  static constexpr size_t kBins = size_t{1} << (31 - kShift);

  float amax_ = 0;
  uint64_t count_ = 0;
  std::vector<uint64_t> bins_;
};

}  // namespace sluice
