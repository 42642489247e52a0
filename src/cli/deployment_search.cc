#include "cli/deployment_search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/scheme.h"
#include "engine/engine_plan.h"
#include "engine/simulated_engine.h"
#include "models/model_config.h"
#include "simulation/step_clock.h"

namespace sluice::cli {
namespace {

struct Split {
  int tensor_size = 1, num_stages = 1, num_engines = 1;
};

// Returns all ways to write `count` as a product of powers of two, ways with few stages first.
std::vector<Split> SplitsOf(int count) {
  std::vector<Split> splits;
  for (int stages = 1; stages <= count; stages *= 2) {
    for (int engines = 1; engines * stages <= count; engines *= 2)
      splits.push_back({count / (stages * engines), stages, engines});
  }
  return splits;
}

double QuantileOf(std::vector<ReplayedRequest> requests, double ReplayedRequest::*figure,
                  double share) {
  const auto index = static_cast<size_t>(share * static_cast<double>(requests.size()));
  const size_t place = std::min(index, requests.size() - 1);
  std::ranges::nth_element(requests, requests.begin() + static_cast<int64_t>(place), {}, figure);
  return requests[place].*figure;
}

double ShareWithin(std::span<const ReplayedRequest> requests, const ServiceLevel& level,
                   double slower) {
  const auto kept = std::ranges::count_if(requests, [&](const ReplayedRequest& request) {
    return request.ttft * slower <= level.ttft && request.tpot * slower <= level.tpot;
  });
  return static_cast<double>(kept) / static_cast<double>(requests.size());
}

class Search {
 public:
  Search(const DeploymentQuery& query, const std::function<void(int)>& on_try)
      : query_(query), on_try_(on_try) {}

  Result<DeploymentSearch> Run() {
    if (query_.requests.empty())
      return Fail(ErrorCode::kInvalidArgument, "the trace has no requests", "trace");
    for (const std::string& format : query_.formats) {
      LoadQuantization quantization = query_.config.load_quantization;
      quantization.weights = format;
      ASSIGN_OR_RETURN(const ModelConfig model,
                       LoadModelConfig(query_.config.model_folder, query_.config.config_overrides,
                                       quantization));
      for (const DeviceProfile& device : query_.devices) RETURN_IF_ERROR(TryDevice(device, model));
    }
    std::ranges::stable_sort(search_.found, {}, [](const Deployment& one) {
      return std::make_tuple(!one.has_price, one.price, one.num_devices(), one.ttft);
    });
    return std::move(search_);
  }

 private:
  Status TryDevice(const DeviceProfile& device, const ModelConfig& model) {
    std::string reason = "too slow";
    const int most = device.is_cpu ? 1 : query_.most_devices;
    for (int count = 1; count <= most; count *= 2) {
      std::vector<Deployment> kept;
      bool any_fits = false;
      for (const Split& split : SplitsOf(count)) {
        // Stages compute in sequence, so they only help a model that does not fit otherwise.
        if (split.num_stages > 1 && any_fits) break;
        auto tried = Try(device, model, split);
        if (!tried) {
          const ErrorCode code = tried.error().code;
          if (code != ErrorCode::kResourceExhausted && code != ErrorCode::kInvalidArgument &&
              code != ErrorCode::kUnsupported)
            return tl::unexpected(std::move(tried).error());
          if (!any_fits) reason = std::move(tried).error().message;
          continue;
        }
        any_fits = true;
        reason = "too slow";
        if (*tried) kept.push_back(**std::move(tried));
      }
      if (kept.empty()) continue;
      // Deployments with the same number of devices cost the same, so the one that meets the
      // service level for most requests is chosen.
      std::ranges::stable_sort(kept, std::greater(), &Deployment::share);
      search_.found.push_back(std::move(kept.front()));
      return {};
    }
    search_.notes.push_back(
        fmt::format("{} with {} weights: {}", device.name, model.scheme->Name(), reason));
    return {};
  }

  // Tries one deployment. Returns nullopt if it does not reach the service level.
  Result<std::optional<Deployment>> Try(const DeviceProfile& device, const ModelConfig& model,
                                        const Split& split) {
    EngineConfig config = query_.config;
    config.tensor_parallel_size = split.tensor_size;
    config.pipeline_parallel_size = split.num_stages;
    config.simulation.device = std::make_shared<const DeviceProfile>(device);
    config.simulation.count = split.tensor_size * split.num_stages;
    RETURN_IF_ERROR(CheckSimulation(config, std::nullopt, /*are_processes=*/false));
    ASSIGN_OR_RETURN(const EnginePlan plan, PlanSimulated(config, model));
    ASSIGN_OR_RETURN(StepCosts costs,
                     StepCostsOf(model, ModelOptionsOf(plan), split.tensor_size, split.num_stages));
    const StepClock clock(device, std::move(costs));
    ReplayOptions options;
    options.limits = plan.scheduler;
    options.num_blocks = plan.num_blocks;
    options.prefix_caching = plan.config.enable_prefix_caching;
    options.level = query_.level;
    std::vector<ReplayedRequest> replayed;
    int64_t output_tokens = 0;
    double seconds = 0;
    for (int engine = 0; engine < split.num_engines; ++engine) {
      std::vector<ReplayRequest> own;
      for (size_t i = static_cast<size_t>(engine); i < query_.requests.size();
           i += static_cast<size_t>(split.num_engines))
        own.push_back(query_.requests[i]);
      if (own.empty()) continue;
      if (on_try_) on_try_(++search_.num_tried);
      ASSIGN_OR_RETURN(ReplayResult result, Replay(clock, options, own));
      if (result.was_ended) return std::nullopt;
      std::ranges::move(result.requests, std::back_inserter(replayed));
      output_tokens += result.output_tokens;
      seconds = std::max(seconds, result.seconds);
    }
    Deployment found{.device = device.name,
                     .tensor_size = split.tensor_size,
                     .num_stages = split.num_stages,
                     .num_engines = split.num_engines,
                     .format = model.scheme->Name(),
                     .error = device.error};
    found.share = ShareWithin(replayed, query_.level, 1);
    if (found.share < query_.level.share) return std::nullopt;
    found.is_safe = ShareWithin(replayed, query_.level, 1 + device.error) >= query_.level.share;
    found.ttft = QuantileOf(replayed, &ReplayedRequest::ttft, query_.level.share);
    found.tpot = QuantileOf(replayed, &ReplayedRequest::tpot, query_.level.share);
    found.output_per_second = seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
    found.kv_tokens = plan.kv_tokens() * split.num_engines;
    found.weight_bytes = plan.weight_bytes;
    const auto price = query_.prices.find(device.name);
    found.has_price = price != query_.prices.end();
    found.price = found.num_devices() * (found.has_price ? price->second : 1);
    return found;
  }

  const DeploymentQuery& query_;
  const std::function<void(int)>& on_try_;
  DeploymentSearch search_;
};

}  // namespace

Result<DeploymentSearch> FindDeployments(const DeploymentQuery& query,
                                         const std::function<void(int)>& on_try) {
  return Search(query, on_try).Run();
}

}  // namespace sluice::cli
