// How ranks carry out RankCalls: the data and the answers use a separate group, since steps in
// flight use the others.
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

  // Rank 0: has the other ranks switch to their staged weights, and waits until they have.
  void Switch(StepChannel& channel);
  // Rank 0: has the other ranks capture graphs, while `record` captures rank 0's, and waits until
  // they have. A failure of any rank fails the group.
  Status Record(StepChannel& channel, const std::function<Status()>& record);
  // Rank 0: reads or writes a piece in the caches of all ranks. `own`: rank 0's; `shares`: bytes of
  // each rank's share; `bytes`: all shares.
  void Read(StepChannel& channel, CacheBytes& own, const std::vector<int64_t>& shares,
            CachePiece piece, int64_t place, std::byte* bytes);
  void Write(StepChannel& channel, CacheBytes& own, const std::vector<int64_t>& shares,
             CachePiece piece, int64_t place, const std::byte* bytes);

  // Other ranks: carry out a call and tell rank 0. Returns the model to compute with from now on.
  // `own`: this rank's cache; null if the tiers are off. `switch_share`: makes the staged share the
  // one in use, after all others have received what the old one has sent. `record`: captures this
  // rank's graphs; may be empty if no rank does.
  Model& CarryOut(const RankCall& call, Model& share, CacheBytes* own,
                  const std::function<Model&()>& switch_share,
                  const std::function<Status(Model&)>& record = {});

 private:
  // Waits until the other ranks have received everything that the share in use has sent.
  void AwaitReceived();
  // Fails the group if `run` throws.
  template <typename Run>
  void FailingAll(const Run& run);

  Communicator& all_;
  // Two levels, since splits of the same ranks may be the same group.
  const std::unique_ptr<Communicator> outer_;
  const std::unique_ptr<Communicator> group_;
  std::vector<std::byte> scratch_;  // of a rank other than 0
};

// The caches of all ranks, for rank 0. `shares`: by rank, of blocks and of states. `is_speaking`:
// held while it exchanges with the others; may be null. Ownership: owns `own` and refers to the
// others.
std::unique_ptr<CacheBytes> MakeJointCacheBytes(RankCalls& calls, StepChannel& channel,
                                                std::unique_ptr<CacheBytes> own,
                                                std::vector<int64_t> block_shares,
                                                std::vector<int64_t> state_shares,
                                                FairMutex* is_speaking);

}  // namespace sluice
