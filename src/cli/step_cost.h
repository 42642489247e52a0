// Estimates the cost of a model's decoding step on several accelerators, for `sluice inspect`.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "models/inspect.h"
#include "options/settings.h"
#include "planner/parallel_step.h"

namespace sluice::cli {

struct StepCost {
  const Accelerator* accelerator = nullptr;
  StoredModel model;
  DeviceGroup group;
  double batch = 0, context = 0;
  double link_bytes_per_second = 0, link_latency = 0;  // in seconds
  ParallelStep step;
  LinkTraffic traffic;
};

// nullopt without --device-kind. kInvalidArgument for an unknown accelerator; otherwise errors of
// ShapeOfConfig.
Result<std::optional<StepCost>> StepCostOf(const options::Settings& settings,
                                           const InspectReport& report);

std::string FormatText(const StepCost& cost);
json::Value ToJson(const StepCost& cost);

}  // namespace sluice::cli
