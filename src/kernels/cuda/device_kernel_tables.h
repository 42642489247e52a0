// The kernels for each kind of device.
#pragma once

#include "device/device.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

// REQUIRES: kCuda only in a program that BuiltWithCuda(), kHip in one that BuiltWithHip().
const DeviceKernels& KernelsOf(DeviceKind kind);

}  // namespace sluice::device
