// This process as one of the ranks that an MPI launcher has started.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/settings.h"
#include "parallel/communicator.h"
#include "parallel/handshake.h"

namespace sluice::cli {

// Set in the environment of ranks that `sluice serve` itself has started: their standard input is
// its pipe to rank 0.
inline constexpr const char* kLaunchedVariable = "SLUICE_LAUNCHED";

class RankProcess {
 public:
  // Starts MPI and the watch over the other ranks, and compares version and options.
  // kInvalidArgument where the launcher started another number of processes than `num_ranks`, or
  // where ranks are unlike; kUnsupported where there is no MPI.
  static Result<std::unique_ptr<RankProcess>> Join(const options::Settings& settings,
                                                   int num_ranks);
  virtual ~RankProcess() = default;

  virtual Communicator& all() = 0;
  // The number of ranks on this rank's machine, itself included.
  virtual int ranks_here() const = 0;
  // "Open MPI v4.1.4".
  virtual std::string library() const = 0;
  // Collective.
  virtual Status Compare(const std::vector<Fact>& facts) = 0;
  // From now on, operations of a step wait as long as --distributed-timeout-seconds says.
  virtual void BeginSteps() = 0;

  // What happens on rank 0 when the group fails: called once, on any thread, and returns soon.
  // Null, as at first: the process ends. Not called any more once another is set. Ranks other than
  // 0 end once rank 0 has.
  virtual void OnFailure(std::function<void(const std::string& reason)> act) = 0;
  // A word of the launcher to rank 0: "drain", "reload". Called on the thread that watches the
  // other ranks, so it returns soon.
  virtual void OnWord(std::function<void(std::string_view word)> act) = 0;

  // Tells the others that this rank cannot go on.
  virtual void Fail(const std::string& reason) = 0;
  // On ranks other than 0: waits for rank 0 to end, then ends this process.
  [[noreturn]] virtual void EndWithFirst() = 0;
  // Leaves in order, when all do.
  virtual void Leave() = 0;
};

}  // namespace sluice::cli
