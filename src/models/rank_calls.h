// Executes RankCalls on the ranks. Data and answers use a separate group, because steps in flight
// use the other groups.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/fair_mutex.h"
#include "models/cache_bytes.h"
#include "models/model.h"
#include "models/rank_call.h"
#include "models/step_channel.h"
#include "parallel/communicator.h"

namespace sluice {

// Each rank has one. Ownership: refers to the group of all ranks, which outlives it.
class RankCalls {
 public:
  // Collective.
  explicit RankCalls(Communicator& all);

  // Called at rank 0: makes the other ranks switch to their staged weights, and waits until they
  // have.
  void Switch(StepChannel& channel);
  // Called at rank 0: makes the other ranks capture graphs while `record` captures rank 0's, and
  // waits until they have. A failure of any rank fails the group.
  Status Record(StepChannel& channel, const std::function<Status()>& record);
  // Called at rank 0: reads or writes a piece in the caches of all ranks. `own`: rank 0's cache;
  // `shares`: bytes of each rank's share; `bytes`: all shares.
  void Read(StepChannel& channel, CacheBytes& own, const std::vector<int64_t>& shares,
            CachePiece piece, int64_t place, std::byte* bytes);
  void Write(StepChannel& channel, CacheBytes& own, const std::vector<int64_t>& shares,
             CachePiece piece, int64_t place, const std::byte* bytes);

  // Called at the other ranks: executes a call and reports to rank 0. Returns the model to use
  // after the call. `own`: this rank's cache; null if the tiers are off. `switch_share`: switches
  // to the staged share, after all other ranks have received the messages that the old share has
  // sent. `record`: captures this rank's graphs; may be empty if no rank captures any.
  Model& CarryOut(const RankCall& call, Model& share, CacheBytes* own,
                  const std::function<Model&()>& switch_share,
                  const std::function<Status(Model&)>& record = {});

 private:
  // Waits until the other ranks have received all messages that the share in use has sent.
  void AwaitReceived();
  // Fails the group if `run` throws.
  template <typename Run>
  void FailingAll(const Run& run);

  Communicator& all_;
  // Two levels of groups, because splits of the same ranks may be the same group.
  const std::unique_ptr<Communicator> outer_;
  const std::unique_ptr<Communicator> group_;
  std::vector<std::byte> scratch_;  // scratch memory of a rank other than 0
};

// Returns access to the caches of all ranks, for rank 0. `block_shares` and `state_shares`: bytes
// of a block and of a slot of states in each rank's cache. `is_speaking`: a mutex that is held
// during exchanges with the other ranks; may be null. Ownership: owns `own` and refers to the other
// arguments.
std::unique_ptr<CacheBytes> MakeJointCacheBytes(RankCalls& calls, StepChannel& channel,
                                                std::unique_ptr<CacheBytes> own,
                                                std::vector<int64_t> block_shares,
                                                std::vector<int64_t> state_shares,
                                                FairMutex* is_speaking);

}  // namespace sluice
