#include "quantize/input_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "base/check.h"

namespace sluice {
namespace {

float ValueAt(const kernels::Activations& x, int64_t row, int64_t col) {
  const int64_t index = row * x.stride + col;
  return x.type == ElementType::kF32 ? x.f32()[index] : ToFloat(x.bf16()[index]);
}

}  // namespace

void InputStatistics::Add(ThreadPool& pool, const kernels::Activations& x) {
  CHECK(x.type == ElementType::kF32 || x.type == ElementType::kBF16);
  if (x.rows == 0) return;
  bins_.resize(kBins);
  std::mutex mutex;
  pool.ParallelFor(x.rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> bins(kBins);
    float amax = 0;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < x.cols; ++col) {
        const float magnitude = std::fabs(ValueAt(x, row, col));
        if (!std::isfinite(magnitude)) continue;
        amax = std::max(amax, magnitude);
        ++bins[std::bit_cast<uint32_t>(magnitude) >> kShift];
      }
    }
    const std::lock_guard lock(mutex);
    amax_ = std::max(amax_, amax);
    for (size_t i = 0; i < kBins; ++i) bins_[i] += bins[i];
  });
  count_ += static_cast<uint64_t>(x.rows * x.cols);
}

float InputStatistics::Percentile(double percentile) const {
  if (percentile >= 100 || bins_.empty()) return amax_;
  const double wanted = static_cast<double>(count_) * percentile / 100;
  double so_far = 0;
  for (size_t i = 0; i < kBins; ++i) {
    so_far += static_cast<double>(bins_[i]);
    if (so_far < wanted) continue;
    return std::min(amax_, std::bit_cast<float>(static_cast<uint32_t>(i + 1) << kShift));
  }
  return amax_;
}

void InputStatistics::Merge(const InputStatistics& other) {
  if (other.bins_.empty()) return;
  bins_.resize(kBins);
  amax_ = std::max(amax_, other.amax_);
  count_ += other.count_;
  for (size_t i = 0; i < kBins; ++i) bins_[i] += other.bins_[i];
}

}  // namespace sluice
