#include "models/weight_stage.h"

#include "models/share.h"

namespace sluice {

Result<std::unique_ptr<DecoderModel>> LoadShareBeside(
    const RankThreads& threads, const Checkpoint* checkpoint, const ModelConfig& config,
    const ModelOptions& options, const RankPlace& place, const RankGroups& groups) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool, StartRankThreads(threads));
  return LoadShare(*pool, checkpoint, config, options, place, groups, /*progress=*/{});
}

}  // namespace sluice
