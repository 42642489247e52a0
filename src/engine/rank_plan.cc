#include "engine/rank_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "models/shard.h"

namespace sluice {
namespace {

constexpr const char* kTensor = "tensor_parallel_size";
constexpr const char* kPipeline = "pipeline_parallel_size";

tl::unexpected<Error> InvalidRanks(const char* param, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), param);
}

std::string Sizes(int tensor_size, int num_stages) {
  return fmt::format("{} {} and {} {}", kTensor, tensor_size, kPipeline, num_stages);
}

Status CheckSizes(const EngineConfig& config, bool is_exact) {
  for (const auto& [param, size] : {std::pair{kTensor, config.tensor_parallel_size},
                                    std::pair{kPipeline, config.pipeline_parallel_size}}) {
    if (size < 1)
      return InvalidRanks(param, fmt::format("{} must be at least 1, got {}", param, size));
  }
  const int64_t asked = int64_t{config.tensor_parallel_size} * config.pipeline_parallel_size;
  if (is_exact && asked > kMostRanks) {
    return InvalidRanks(
        kTensor, fmt::format("{} make {} ranks, expected at most {}; lower one of them",
                             Sizes(config.tensor_parallel_size, config.pipeline_parallel_size),
                             asked, kMostRanks));
  }
  return {};
}

// Describes the planned numbers of ranks if the user requested any; otherwise returns "".
std::string NoteOf(const EngineConfig& config, const RankPlan& plan, int num_nodes,
                   const std::string& device_name) {
  const int tensor_size = config.tensor_parallel_size, num_stages = config.pipeline_parallel_size;
  if (tensor_size == 1 && num_stages == 1) return "";
  if (!device_name.empty()) {
    return fmt::format("{}: {} devices ({}); the memory above is what each of them holds at most",
                       Sizes(tensor_size, num_stages), plan.num_ranks(), device_name);
  }
  if (config.exact_ranks) {
    return fmt::format("{} as requested: {} ranks with {} threads", Sizes(tensor_size, num_stages),
                       plan.num_ranks(), plan.num_threads());
  }
  return fmt::format(
      "{}: {} of this machine with {} NUMA node{}; answers have the same bits for every number of "
      "ranks (--tensor-parallel-mode exact creates all requested ranks)",
      Sizes(tensor_size, num_stages),
      plan.num_ranks() == 1 ? std::string("one rank computes with all threads")
                            : fmt::format("{} ranks share each layer", plan.num_ranks()),
      num_nodes, num_nodes == 1 ? "" : "s");
}

}  // namespace

int RankPlan::num_threads() const {
  int all = 0;
  for (const RankThreads& rank : threads) all += rank.num_threads;
  return all;
}

Result<RankPlan> PlanRanks(const EngineConfig& config, const Topology& topology, int num_threads,
                           const std::string& device_name) {
  const bool is_exact = config.exact_ranks || !device_name.empty();
  RETURN_IF_ERROR(CheckSizes(config, is_exact));
  const int num_nodes = std::max(1, static_cast<int>(topology.node_cpus.size()));
  RankPlan plan;
  plan.tensor_size =
      is_exact ? config.tensor_parallel_size : std::min(config.tensor_parallel_size, num_nodes);
  plan.num_stages = is_exact ? config.pipeline_parallel_size : 1;
  const int ranks = plan.num_ranks();
  plan.threads.assign(static_cast<size_t>(ranks), {});
  for (int rank = 0; rank < ranks; ++rank) {
    RankThreads& threads = plan.threads[static_cast<size_t>(rank)];
    threads.num_threads =
        std::max(1, num_threads * (rank + 1) / ranks - num_threads * rank / ranks);
    if (ranks > 1 && device_name.empty() && topology.node_cpus.size() > 1)
      threads.cpus = topology.node_cpus[static_cast<size_t>(rank * num_nodes / ranks)];
  }
  plan.note = NoteOf(config, plan, num_nodes, device_name);
  plan.fewer = ranks < config.tensor_parallel_size * config.pipeline_parallel_size;
  return plan;
}

std::vector<RankThreads> ThreadsOfEngine(const RankPlan& ranks, int engine, int num_engines) {
  std::vector<RankThreads> own = ranks.threads;
  for (RankThreads& rank : own) {
    const int begin = rank.num_threads * engine / num_engines;
    const int end = rank.num_threads * (engine + 1) / num_engines;
    rank.num_threads = std::max(1, end - begin);
    // Thread i is pinned to CPU i of its rank. Rotates the list so that each engine begins with its
    // own CPUs.
    if (!rank.cpus.empty()) {
      std::rotate(rank.cpus.begin(), rank.cpus.begin() + begin % static_cast<int>(rank.cpus.size()),
                  rank.cpus.end());
    }
  }
  return own;
}

}  // namespace sluice
