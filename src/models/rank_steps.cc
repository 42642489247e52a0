#include "models/rank_steps.h"

namespace sluice {

void LeadStep(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
              const StepInput& input, KvCache& cache, float* logits) {
  try {
    channel.Publish(input);
    share.Forward(pool, input, cache, logits);
    channel.Finish();
  } catch (const GroupError&) {
    throw;
  } catch (const std::exception& error) {
    all.Fail(error.what());
    throw;
  }
}

void FollowSteps(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
                 KvCache& cache) {
  try {
    share.PrepareThread(pool);
    while (const StepInput* input = channel.Receive()) {
      share.Forward(pool, *input, cache, nullptr);
      channel.Finish();
    }
  } catch (const GroupError&) {
    throw;
  } catch (const std::exception& error) {
    all.Fail(error.what());
    throw GroupError(all.failure());
  }
}

}  // namespace sluice
