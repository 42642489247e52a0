// A matrix product of a measured shape, with random weights generated on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/test_weights.h"
#include "kernels/cuda/device_linear.h"

namespace sluice::selftest {

struct MeasuredShape {
  const char* name;
  int64_t n, k;
};
// The layers of Llama 3 70B.
inline constexpr MeasuredShape kLlama70Layers[] = {
    {"qkv", 10240, 8192}, {"o", 8192, 8192}, {"gate, up", 57344, 8192}, {"down", 8192, 28672}};

class MeasuredProduct {
 public:
  // `copies`: number of copies of the weights, through which launches cycle. Results are BF16.
  MeasuredProduct(const checks::DeviceUnderTest& device, checks::CaseMemory& memory,
                  device::DeviceLinear& products, const checks::WeightFormat& format, int64_t m,
                  int64_t n, int64_t k, int64_t copies);

  const device::LinearArgs& args(int64_t turn) const {
    return args_[static_cast<size_t>(turn) % args_.size()];
  }
  std::span<const device::LinearArgs> all() const { return args_; }
  static double WeightBytes(const checks::WeightFormat& format, int64_t n, int64_t k);
  // Returns the bytes of weights, inputs and results.
  double bytes() const { return bytes_; }
  double flops() const { return flops_; }

 private:
  std::vector<device::LinearArgs> args_;
  double bytes_ = 0, flops_ = 0;
};

}  // namespace sluice::selftest
