#include "models/process_model.h"

#include <utility>

#include "models/process_step_channel.h"
#include "models/rank_steps.h"
#include "models/share.h"

namespace sluice {
namespace {

// What a rank has, in the order in which it goes.
struct ProcessShare {
  Communicator& all;
  std::unique_ptr<Communicator> stage;  // null where the rank is alone in its stage
  std::unique_ptr<StepChannel> channel;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Model> model;
};

class LeadingModel final : public Model {
 public:
  LeadingModel(const ModelConfig& config, ProcessShare share)
      : Model(config), share_(std::move(share)) {}

  ~LeadingModel() override {
    try {
      share_.channel->Close();
    } catch (const GroupError&) {  // NOLINT(bugprone-empty-catch)
      // Then they have ended, or will by themselves.
    }
  }

  void PrepareThread(const ThreadPool& pool) override { share_.model->PrepareThread(pool); }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    LeadStep(share_.all, *share_.channel, *share_.model, pool, input, cache, logits);
  }

  Status CheckAlive() override {
    const std::string reason = share_.all.failure();
    if (reason.empty()) return {};
    return Fail(ErrorCode::kUnavailable, reason);
  }

 private:
  ProcessShare share_;
};

class RankProcess final : public RankProcessModel {
 public:
  RankProcess(const ModelConfig& config, ThreadPool& pool, ProcessShare share)
      : config_(config), pool_(pool), share_(std::move(share)) {}

  ParallelShare TakeLead() override {
    ParallelShare lead;
    lead.cache = std::move(share_.cache);
    lead.model = std::make_unique<LeadingModel>(config_, std::move(share_));
    return lead;
  }

  void Follow() override {
    FollowSteps(share_.all, *share_.channel, *share_.model, pool_, *share_.cache);
  }

 private:
  const ModelConfig config_;
  ThreadPool& pool_;
  ProcessShare share_;
};

Status LoadProcessShare(ProcessShare& share, ThreadPool& pool, const std::filesystem::path& folder,
                        const ModelConfig& config, const ModelOptions& options,
                        const ParallelOptions& parallel, const LoadProgress& progress) {
  const RankPlace place =
      RankPlace::Of(share.all.rank(), parallel.tensor_size, parallel.num_stages);
  RETURN_IF_ERROR(CheckRanks(config.spec, parallel.tensor_size, parallel.num_stages));
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   OpenChecked(folder, config, options));
  if (place.tensor_size > 1)
    share.stage = share.all.Split(place.stage * place.tensor_size, place.tensor_size);
  ASSIGN_OR_RETURN(share.model,
                   LoadShare(pool, checkpoint ? &*checkpoint : nullptr, config, options, place,
                             {.all = &share.all, .stage = share.stage.get()}, progress));
  const DecoderSpec spec = ShareOf(config.spec, place);
  const RowRange layers =
      CutLayers(static_cast<int64_t>(config.spec.layers.size()), place.stage, place.num_stages);
  ASSIGN_OR_RETURN(KvCache cache,
                   KvCache::Allocate(KvLayoutOf(spec, options),
                                     StageGroups(parallel.kv_groups, layers), parallel.num_blocks));
  cache.Warm(pool);
  share.cache = std::make_unique<KvCache>(std::move(cache));
  share.channel = MakeProcessStepChannel(share.all, {.max_rows = options.max_rows,
                                                     .max_slices = options.max_slices,
                                                     .max_context = options.max_context,
                                                     .max_logit_rows = options.max_logit_rows,
                                                     .block_size = options.block_size,
                                                     .num_groups = parallel.kv_groups.num_groups(),
                                                     .num_blocks = parallel.num_blocks,
                                                     .vocab_size = config.vocab_size});
  return {};
}

// However long the slowest takes to load.
void WaitForAllRanks(Communicator& all) {
  for (int rank = 0; rank < all.size(); ++rank) {
    char is_ready = 1;
    all.Broadcast(&is_ready, sizeof(is_ready), rank, Patience::kIdle);
  }
}

}  // namespace

Result<std::unique_ptr<RankProcessModel>> RankProcessModel::Load(
    Communicator& all, ThreadPool& pool, const std::filesystem::path& folder,
    const ModelConfig& config, const ModelOptions& options, const ParallelOptions& parallel,
    const LoadProgress& progress) {
  ProcessShare share{.all = all, .stage = {}, .channel = {}, .cache = {}, .model = {}};
  if (Status loaded = LoadProcessShare(share, pool, folder, config, options, parallel, progress);
      !loaded) {
    all.Fail(loaded.error().message);
    return tl::unexpected<Error>(std::move(loaded).error());
  }
  WaitForAllRanks(all);
  return std::make_unique<RankProcess>(config, pool, std::move(share));
}

}  // namespace sluice
