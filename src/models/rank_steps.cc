#include "models/rank_steps.h"

#include "base/check.h"
#include "base/firewall.h"

namespace sluice {
namespace {

// If `run` throws, fails the group.
template <typename Run>
void FailingAll(Communicator& all, const Run& run) {
  try {
    run();
  } catch (const GroupError&) {
    throw;
  } catch (...) {
    all.Fail(CaughtMessage());
    throw;
  }
}

// Finishes the step that `share` has begun, ignoring exceptions.
void AbandonStep(Model& share, ThreadPool& pool) {
  try {
    share.Finish(pool);
  } catch (...) {  // NOLINT(bugprone-empty-catch)
    // The failure of the group has been reported.
  }
}

// If EndReading throws, the step that `share` has begun must end as well: nothing may use the
// memory of the caller and of other ranks afterwards.
void EndReading(StepChannel& channel, Model& share, ThreadPool& pool) {
  try {
    channel.EndReading();
  } catch (...) {
    AbandonStep(share, pool);
    throw;
  }
}

}  // namespace

void LeadBegin(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
               const StepInput& input, KvCache& cache, float* logits) {
  FailingAll(all, [&] {
    channel.Publish(input);
    share.Begin(pool, input, cache, logits);
    EndReading(channel, share, pool);
  });
}

void LeadFinish(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool) {
  FailingAll(all, [&] {
    channel.PublishFinish();
    share.Finish(pool);
    channel.EndStep();
  });
}

void FollowSteps(Communicator& all, StepChannel& channel, Model& share, ThreadPool& pool,
                 KvCache& cache, const CarryOut& carry_out) {
  Model* used = &share;
  try {
    used->PrepareThread(pool);
    while (const StepOrder order = channel.Receive()) {
      if (order.call.kind != RankCall::Kind::kNone) {
        CHECK(carry_out != nullptr, "a rank that accepts no calls received one");
        Model* const next = &carry_out(order.call, *used);
        if (next != used) next->PrepareThread(pool);
        used = next;
        continue;
      }
      if (order.input != nullptr) {
        used->Begin(pool, *order.input, cache, nullptr);
        EndReading(channel, *used, pool);
      }
      if (!order.finishes) continue;
      used->Finish(pool);
      channel.EndStep();
    }
  } catch (const GroupError&) {
    throw;
  } catch (...) {
    all.Fail(CaughtMessage());
    throw GroupError(all.failure());
  }
}

}  // namespace sluice
