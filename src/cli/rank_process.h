// This process as one of the ranks that an MPI launcher started.
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

// Environment variable of ranks that `sluice serve` itself started. If it is set, rank 0's standard
// input is a pipe from that process.
inline constexpr const char* kLaunchedVariable = "SLUICE_LAUNCHED";

class RankProcess {
 public:
  // Starts MPI and a thread that watches the other ranks, and compares version and options.
  // kInvalidArgument if the number of processes is not `num_ranks`, or if ranks differ;
  // kUnsupported if MPI is missing.
  static Result<std::unique_ptr<RankProcess>> Join(const options::Settings& settings,
                                                   int num_ranks);
  virtual ~RankProcess() = default;

  virtual Communicator& all() = 0;
  // Number of ranks on this rank's machine, including this one.
  virtual int ranks_here() const = 0;
  // for example "Open MPI v4.1.4".
  virtual std::string library() const = 0;
  // Compares `facts` with the other ranks' facts. Collective: all ranks must call it.
  virtual Status Compare(const std::vector<Fact>& facts) = 0;
  // After this, operations of a step time out after --distributed-timeout-seconds.
  virtual void BeginSteps() = 0;

  // Sets what rank 0 does when the group fails. `act` is called once, on any thread, and must
  // return soon. Null (the initial value): the process ends. A replaced function is never called.
  // Ranks other than 0 end when rank 0 has ended.
  virtual void OnFailure(std::function<void(const std::string& reason)> act) = 0;
  // Sets the handler for the words that the launcher sends to rank 0: "drain", "reload". Called on
  // the thread that watches the other ranks, so it must return soon.
  virtual void OnWord(std::function<void(std::string_view word)> act) = 0;

  // Notifies the other ranks that this one cannot continue.
  virtual void Fail(const std::string& reason) = 0;
  // For ranks other than 0: waits until rank 0 ends, then ends this process.
  [[noreturn]] virtual void EndWithFirst() = 0;
  // Leaves the group cleanly. Collective: all ranks must call it.
  virtual void Leave() = 0;
};

}  // namespace sluice::cli
