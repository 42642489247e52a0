#include "engine/weight_loads.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "hardware/memory.h"
#include "models/parallel_model.h"

namespace sluice {
namespace {

std::string MebibytesText(int64_t bytes) {
  return fmt::format("{} MiB", (bytes + (int64_t{1} << 20) - 1) >> 20);
}

}  // namespace

WeightLoads::WeightLoads(EnginePlan plan, ModelConfig model, int ranks_here)
    : plan_(std::move(plan)), model_(std::move(model)), ranks_here_(ranks_here) {}

Status WeightLoads::CheckRoom() const {
  const int64_t needed = ranks_here_ * (plan_.weight_bytes + plan_.workspace_bytes);
  const int64_t available = ReadMemoryLimits().available_bytes;
  if (needed <= available) return {};
  return Fail(ErrorCode::kResourceExhausted,
              fmt::format("new weights are loaded in addition to the old ones and need {}, but {} "
                          "are available; lower --kv-cache-memory-bytes",
                          MebibytesText(needed), MebibytesText(available)));
}

Result<std::unique_ptr<Model>> WeightLoads::LoadModel(int engine,
                                                      const std::filesystem::path& folder) {
  if (engine > 0) {
    CHECK(others_[static_cast<size_t>(engine)] != nullptr, "the first engine loads");
    return std::move(others_[static_cast<size_t>(engine)]);
  }
  others_.clear();
  RETURN_IF_ERROR(CheckRoom());
  ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool,
                   StartRankThreads(plan_.ranks.threads.front()));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> first,
                   sluice::LoadModel(*pool, folder, model_, ModelOptionsOf(plan_)));
  others_.resize(static_cast<size_t>(plan_.num_engines));
  if (plan_.num_engines == 1) return first;
  // Each engine computes with some of the threads.
  for (int i = 0; i < plan_.num_engines; ++i) {
    ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> own,
                     StartRankThreads(ThreadsOfEngine(plan_.ranks, i, plan_.num_engines).front()));
    ASSIGN_OR_RETURN(others_[static_cast<size_t>(i)], first->Share(*own));
  }
  return std::move(others_.front());
}

Status WeightLoads::Stage(int engine, WeightStage& own, const std::filesystem::path& folder) {
  if (engine > 0) return own.StageFrom(*first_);
  first_ = &own;
  RETURN_IF_ERROR(CheckRoom());
  return own.Stage(folder);
}

void WeightLoads::AddTo(EngineLoop::Loader& loader, const std::shared_ptr<WeightLoads>& loads,
                        int engine) {
  const EnginePlan& plan = loads->plan_;
  if (plan.on_device()) return;
  if (plan.tensor_ranks * plan.pipeline_stages > 1) {
    loader.stage = [loads, engine](WeightStage& own, const std::filesystem::path& folder) {
      return loads->Stage(engine, own, folder);
    };
  } else {
    loader.load_model = [loads, engine](const std::filesystem::path& folder) {
      return loads->LoadModel(engine, folder);
    };
  }
}

}  // namespace sluice
