#include "cli/serve_rank.h"

#include <chrono>
#include <thread>

#include "base/log.h"
#include "cli/configs.h"
#include "cli/rank_facts.h"

namespace sluice::cli {
namespace {

// Rank 0 reports an error that occurs on all ranks. The other ranks wait this long before they
// report it, so that rank 0 is first.
constexpr std::chrono::seconds kTimeForFirst(1);

Status ComputeAsRank(const options::Settings& settings, RankProcess& process,
                     const RankSizes& sizes) {
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(const EngineConfig config,
                   MakeEngineConfig(settings, model, {}, /*are_processes=*/true));
  ASSIGN_OR_RETURN(const std::vector<Fact> facts, ModelFacts(config));
  RETURN_IF_ERROR(process.Compare(facts));
  process.BeginSteps();
  return RunProcessRank({.all = &process.all(),
                         .tensor_size = sizes.tensor_size,
                         .num_stages = sizes.num_stages,
                         .here = process.ranks_here()},
                        config);
}

}  // namespace

RankSizes RankSizesOf(const options::Settings& settings) {
  return {static_cast<int>(settings.Integer("tensor-parallel-size").value_or(1)),
          static_cast<int>(settings.Integer("pipeline-parallel-size").value_or(1))};
}

Result<int> RunServingRank(const options::Settings& settings, RankProcess& process,
                           const RankSizes& sizes) {
  // Rank 0 logs facts that are the same on all ranks.
  if (!LogEnabled(LogLevel::kDebug)) SetLogLevel(LogLevel::kWarning);
  try {
    if (const Status status = ComputeAsRank(settings, process, sizes); !status) {
      std::this_thread::sleep_for(kTimeForFirst);
      process.Fail(status.error().message);
      process.EndWithFirst();
    }
    process.Leave();
  } catch (const GroupError&) {
    process.EndWithFirst();
  }
  return 0;
}

}  // namespace sluice::cli
