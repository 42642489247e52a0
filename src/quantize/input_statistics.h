// How large the inputs of linear layers, keys and values get over a calibration text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace sluice {

// The magnitudes of numbers that were seen: the largest, and how many were about how large.
class InputStatistics {
 public:
  void Add(ThreadPool& pool, const kernels::Activations& x);

  bool empty() const { return count_ == 0; }
  float amax() const { return amax_; }
  // The magnitude that `percentile` percent of the numbers do not exceed, rounded up by less than
  // 2 percent; never above amax.
  float Percentile(double percentile) const;
  void Merge(const InputStatistics& other);

 private:
  // Numbers by exponent and the 6 highest bits of the mantissa.
  static constexpr int kShift = 17;
  static constexpr size_t kBins = size_t{1} << (31 - kShift);

  float amax_ = 0;
  uint64_t count_ = 0;
  std::vector<uint64_t> bins_;
};

}  // namespace sluice
