#include "models/inspect.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/configs.h"
#include "cli/exit_code.h"
#include "cli/step_cost.h"
#include "models/inspect_program.h"

namespace sluice::cli {

namespace {

// Returns the exit code with which `serve` would end for the model.
int CodeOf(const InspectReport& report) {
  return report.refusal ? ExitCode(ErrorCode::kUnsupported) : 0;
}

}  // namespace

Result<int> RunInspect(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(
      const InspectReport report,
      InspectModel(model.folder, static_cast<int>(*settings.Integer("tensor-parallel-size")),
                   static_cast<int>(*settings.Integer("pipeline-parallel-size"))));
  ASSIGN_OR_RETURN(const std::optional<StepCost> cost, StepCostOf(settings, report));
  const bool wants_program = settings.Flag("program");
  if (wants_program && report.refusal) return Fail(ErrorCode::kUnsupported, *report.refusal);
  // With several ranks, shows the program of the first one.
  RankPlace place;
  if (!report.ranks.empty()) place = report.ranks.front().place;
  if (settings.Flag("json")) {
    json::Value value = ToJson(report);
    if (cost) value.Set("step", ToJson(*cost));
    if (wants_program) {
      ASSIGN_OR_RETURN(json::Value program, ProgramJson(*report.config, report.options, place));
      value.Set("program", std::move(program));
    }
    fmt::print("{}\n", json::Write(value));
    return CodeOf(report);
  }
  std::string program;
  if (wants_program) {
    ASSIGN_OR_RETURN(program, ProgramText(*report.config, report.options, place));
    program.insert(0, "\nProgram on a CPU\n");
  }
  fmt::print("{}{}{}", FormatText(report), cost ? FormatText(*cost) : "", program);
  return CodeOf(report);
}

}  // namespace sluice::cli
