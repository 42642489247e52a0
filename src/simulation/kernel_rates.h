// Factors of a device from a run of `sluice kernel-bench --json`, which measures kernels one by
// one.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "simulation/device_profile.h"

namespace sluice {

// Whether a JSON object is a report of kernel-bench.
bool IsKernelReport(const json::Value& report);

// What the report determines: the median over its rows of the sheet's rate divided by the measured
// one.
struct KernelFactors {
  StepParts factors{};     // of `device`, those of the determined parts replaced
  std::string determined;  // "weights from 40 rows, products from 12 rows"
};

// weights from products of at most 16 rows, products from those of 1024 and more in the formats
// that `device` has a rate for, cache from attention of one token a sequence, attention from
// prompts. The other parts are of the host and of links between devices, and keep those of
// `device`. kInvalidData, with `place`, if the report is of a run that broke off or determines
// nothing.
Result<KernelFactors> FactorsOfKernels(const json::Value& report, const DeviceProfile& device,
                                       std::string_view place);

}  // namespace sluice
