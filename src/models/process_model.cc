#include "models/process_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/fair_mutex.h"
#include "models/kv_layout.h"
#include "models/lora_store.h"
#include "models/message_step_channel.h"
#include "models/rank_steps.h"
#include "models/share.h"

namespace sluice {
namespace {

// The objects of a rank; destroyed in reverse order.
struct ProcessShare {
  Communicator& all;
  std::unique_ptr<Communicator> stage;  // null if the rank is alone in its stage
  std::unique_ptr<MessageStepChannel> channel;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Model> model;
};

// The slots of all ranks, filled between two steps.
class SlotsOfProcesses final : public LoraStore {
 public:
  // `is_speaking` is held while sending to the other ranks.
  SlotsOfProcesses(std::shared_ptr<LoraStore> own, MessageStepChannel& channel,
                   FairMutex& is_speaking)
      : own_(std::move(own)), channel_(channel), is_speaking_(is_speaking) {}

  const LoraLayout& layout() const override { return own_->layout(); }
  Status Fill(int slot, const LoraAdapter& adapter) override {
    RETURN_IF_ERROR(own_->Fill(slot, adapter));
    std::error_code failed;  // set if the working folder is gone
    const std::filesystem::path folder = std::filesystem::absolute(adapter.folder(), failed);
    if (failed) {
      return sluice::Fail(ErrorCode::kUnavailable,
                          fmt::format("{}: {}", adapter.folder().string(), failed.message()));
    }
    const FairMutexLock lock(is_speaking_);
    try {
      return channel_.FillEverywhere(slot, folder.string());
    } catch (const GroupError& error) {
      return sluice::Fail(ErrorCode::kUnavailable, error.what());
    }
  }

 private:
  const std::shared_ptr<LoraStore> own_;
  MessageStepChannel& channel_;
  FairMutex& is_speaking_;
};

class LeadingModel final : public Model {
 public:
  LeadingModel(const ModelConfig& config, ProcessShare share)
      : Model(config), share_(std::move(share)) {
    if (auto own = share_.model->lora(); own != nullptr) {
      slots_ = std::make_shared<SlotsOfProcesses>(std::move(own), *share_.channel, is_speaking_);
    }
  }

  ~LeadingModel() override {
    try {
      share_.channel->Close();
    } catch (const GroupError&) {  // NOLINT(bugprone-empty-catch)
      // Then the other ranks have ended, or will end by themselves.
    }
  }

  void PrepareThread(const ThreadPool& pool) override { share_.model->PrepareThread(pool); }

  // Must not outlive this model.
  std::shared_ptr<LoraStore> lora() override { return slots_; }

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    Begin(pool, input, cache, logits);
    Finish(pool);
  }
  int steps_in_flight() const override { return share_.model->steps_in_flight(); }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    const FairMutexLock lock(is_speaking_);
    LeadBegin(share_.all, *share_.channel, *share_.model, pool, input, cache, logits);
  }
  void Finish(ThreadPool& pool) override {
    const FairMutexLock lock(is_speaking_);
    LeadFinish(share_.all, *share_.channel, *share_.model, pool);
  }

  Status CheckAlive() override {
    const std::string reason = share_.all.failure();
    if (reason.empty()) return {};
    return Fail(ErrorCode::kUnavailable, reason);
  }

 private:
  // Fair, since steps follow each other without a pause and filling an adapter should not wait
  // until there are no more.
  FairMutex is_speaking_;
  ProcessShare share_;
  std::shared_ptr<LoraStore> slots_;
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

Status FillSlotOf(Model& model, int slot, const std::string& folder) {
  const std::shared_ptr<LoraStore> slots = model.lora();
  ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::Open(folder, slots->layout()));
  return slots->Fill(slot, adapter);
}

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
  ASSIGN_OR_RETURN(
      KvCache cache,
      KvCache::Allocate(KvLayoutOf(spec, options),
                        ShareGroups(parallel.kv_groups, config.spec, place), parallel.num_blocks));
  RETURN_IF_ERROR(cache.AllocateStates(StateLayout::For(spec), options.state_slots));
  cache.Warm(pool);
  share.cache = std::make_unique<KvCache>(std::move(cache));
  share.channel = MakeMessageStepChannel(
      share.all, StepLimitsOf(options, parallel, config.vocab_size), share.model->steps_in_flight(),
      [model = share.model.get()](int slot, const auto& folder) {
        return FillSlotOf(*model, slot, folder);
      });
  return {};
}

// Waits without a timeout, however long the slowest rank takes to load.
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
