#include "models/inspect.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/configs.h"

namespace sluice::cli {

Result<int> RunInspect(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(
      const InspectReport report,
      InspectModel(model.folder, static_cast<int>(*settings.Integer("tensor-parallel-size")),
                   static_cast<int>(*settings.Integer("pipeline-parallel-size"))));
  if (settings.Flag("json")) {
    fmt::print("{}\n", json::Write(ToJson(report)));
  } else {
    fmt::print("{}", FormatText(report));
  }
  return 0;
}

}  // namespace sluice::cli
