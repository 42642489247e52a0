#include "kernels/cuda/device_linear.h"

namespace sluice::device {

class LibraryLinear {};

DeviceLinear::DeviceLinear(const DeviceKernels& kernels, const DeviceLinearOptions& options)
    : kernels_(kernels), options_(options) {}
DeviceLinear::~DeviceLinear() = default;

Result<std::unique_ptr<DeviceLinear>> DeviceLinear::Create(Device& /*device*/,
                                                           const DeviceKernels& kernels,
                                                           const DeviceLinearOptions& options) {
  return std::unique_ptr<DeviceLinear>(new DeviceLinear(kernels, options));
}

int64_t DeviceLinear::ScratchBytes(const Weights& /*w*/, int64_t /*max_m*/) const {
  return 0;
}

void DeviceLinear::Run(DeviceStream& stream, const LinearArgs& args) {
  if (args.m == 0) return;
  ++counts_.own;
  kernels_.linear(stream.handle(), args);
}

std::vector<int64_t> DeviceLinear::TuningRows(int64_t /*max_m*/) const {
  return {};
}
Status DeviceLinear::Tune(DeviceStream& /*stream*/, const LinearArgs& /*args*/) {
  return {};
}
Status DeviceLinear::SaveTactics() {
  return {};
}
std::string DeviceLinear::library() const {
  return "";
}

}  // namespace sluice::device
