// Ranks as processes: the contract of communicator.h over MPI.
//
// Every operation starts sends and receives between pairs of ranks, all at once, then tests them
// until they are done, the deadline has passed or the group has failed: no call blocks inside MPI.
// So the error can name a missing rank, and another thread that learns of a process's end
// (rank_watch.h) can end the wait with Fail.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "parallel/communicator.h"
#include "parallel/mpi/mpi_table.h"
#include "parallel/wire_clock.h"

namespace sluice {

struct MpiGroupOptions {
  // How long an operation inside a step waits for the other ranks.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
  WireClock* clock = &WireClock::Machine();
};

// A group of all processes that the launcher started. Ownership: outlives the communicators that it
// returned. Only Leave finalizes MPI; a process whose group has failed ends without it.
class MpiGroup {
 public:
  virtual ~MpiGroup() = default;

  // Initializes MPI, which waits for all ranks.
  static Result<std::unique_ptr<MpiGroup>> Join(const SluiceMpiTable& mpi,
                                                const MpiGroupOptions& options);

  virtual Communicator& all() = 0;
  // Returns, for example, "Open MPI 4.1.4".
  virtual std::string library() const = 0;
  // Sets the deadline of operations that begin after this call. Called by the rank's thread.
  virtual void SetDeadline(std::chrono::milliseconds deadline) = 0;
  // Fails the group with a reason that already names the rank. Any thread may call it. The first
  // reason is kept.
  virtual void FailAs(const std::string& reason) = 0;
  // Sets the listener, which the thread that fails the group calls once, with the reason.
  virtual void OnFailure(std::function<void(const std::string& reason)> listener) = 0;
  // Finalizes MPI unless the group has failed. Collective.
  virtual void Leave() = 0;
};

}  // namespace sluice
