// Predicts how long a step takes on a simulated device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulation/device_profile.h"
#include "simulation/step_costs.h"

namespace sluice {

// The tokens of one sequence in a step.
struct SliceLoad {
  int64_t context = 0;      // number of tokens before them in the cache
  int64_t num_tokens = 0;   // number of tokens computed in the step
  int64_t wanted_rows = 0;  // number of the computed tokens whose logits are needed
};

// Thread safety: all methods are const.
class StepClock {
 public:
  StepClock(DeviceProfile device, StepCosts costs);

  // Returns the amounts of a step's parts, which DeviceProfile::factors multiply. The amount of
  // kRequest is 0.
  StepParts AmountsOf(std::span<const SliceLoad> slices) const;
  // Returns the seconds of the step: the sum over its parts. Pipeline stages compute in sequence.
  double SecondsOf(std::span<const SliceLoad> slices) const;
  // Returns the seconds that a request takes before it can be scheduled.
  double request_seconds() const { return device_.factor(StepPart::kRequest); }

  const DeviceProfile& device() const { return device_; }
  const StepCosts& costs() const { return costs_; }

 private:
  double RateOf(ProductRate rate) const;

  DeviceProfile device_;
  StepCosts costs_;
};

// Returns the sum of amounts times factors.
double SecondsOf(const StepParts& amounts, const StepParts& factors);

}  // namespace sluice
