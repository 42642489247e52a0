// Computes the factors of a device from the report of `sluice kernel-bench --json`, which measures
// kernels one by one.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "simulation/device_profile.h"

namespace sluice {

// Whether a JSON object is a report of kernel-bench.
bool IsKernelReport(const json::Value& report);

// The factors that the report determines: medians over its rows of the data sheet's rate divided by
// the measured rate.
struct KernelFactors {
  StepParts factors{};  // the factors of `device`, with measured ones for the parts in `determined`
  std::string determined;  // for example "weights from 40 rows, products from 12 rows"
};

// Computes the factors from a report. kWeights: products of at most 16 rows. kProducts: products of
// 1024 rows and more in formats for which `device` has a rate. kCache: attention of one token per
// sequence. kAttention: attention of prompts. The other parts belong to the host and to links
// between devices; they keep the factors of `device`. kInvalidData, with `place`, if the run was
// interrupted or the report determines nothing.
Result<KernelFactors> FactorsOfKernels(const json::Value& report, const DeviceProfile& device,
                                       std::string_view place);

}  // namespace sluice
