#include "models/inspect.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/configs.h"
#include "cli/step_cost.h"

namespace sluice::cli {

Result<int> RunInspect(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(
      const InspectReport report,
      InspectModel(model.folder, static_cast<int>(*settings.Integer("tensor-parallel-size")),
                   static_cast<int>(*settings.Integer("pipeline-parallel-size"))));
  ASSIGN_OR_RETURN(const std::optional<StepCost> cost, StepCostOf(settings, report));
  if (settings.Flag("json")) {
    json::Value value = ToJson(report);
    if (cost) value.Set("step", ToJson(*cost));
    fmt::print("{}\n", json::Write(value));
  } else {
    fmt::print("{}{}", FormatText(report), cost ? FormatText(*cost) : "");
  }
  return 0;
}

}  // namespace sluice::cli
