// The kernels for each kind of device.
#pragma once

#include "device/device.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/exchange_columns.h"

namespace sluice::device {

// REQUIRES: kCuda only in a program that BuiltWithCuda(), kHip in one that BuiltWithHip().
const DeviceKernels& KernelsOf(DeviceKind kind);
// Returns the launcher of exchanges, which only ranks use.
ExchangeColumns ExchangeColumnsOf(DeviceKind kind);

}  // namespace sluice::device
