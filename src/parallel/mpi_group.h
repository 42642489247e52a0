// Ranks as processes: the contract of communicator.h over MPI.
//
// Every operation is a set of sends and receives between pairs of ranks, all begun at once and then
// tested until they are done, until the deadline, or until the group has failed: no call waits
// inside MPI. So a rank that does not come is known by its number, and another thread, which hears
// that a process has ended (rank_watch.h), ends the wait by Fail.
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

// All processes that the launcher has started. Ownership: outlives the communicators that it gave.
// MPI is finalized by Leave alone: a process whose group has failed ends without.
class MpiGroup {
 public:
  virtual ~MpiGroup() = default;

  // Starts MPI, which waits for all ranks.
  static Result<std::unique_ptr<MpiGroup>> Join(const SluiceMpiTable& mpi,
                                                const MpiGroupOptions& options);

  virtual Communicator& all() = 0;
  // "Open MPI 4.1.4".
  virtual std::string library() const = 0;
  // Sets the deadline of operations that begin from now on; by the rank's thread.
  virtual void SetDeadline(std::chrono::milliseconds deadline) = 0;
  // Fails the group with a reason that names the rank already; any thread. The first reason stays.
  virtual void FailAs(const std::string& reason) = 0;
  // Called once, by the thread that failed the group, with the reason.
  virtual void OnFailure(std::function<void(const std::string& reason)> listener) = 0;
  // Ends MPI where the group has not failed. Collective.
  virtual void Leave() = 0;
};

}  // namespace sluice
