// Detects the end of any process of a group, which MPI does not.
//
// Every rank has a connection to rank 0 (TCP; over the loopback on one machine). When a process
// ends for any reason, its connection is closed. A process that is stopped, or whose machine cannot
// be reached, is detected by its silence: a dedicated thread sends a heartbeat several times a
// second, however long a step takes. A rank that detects a failure reports it to rank 0, which
// reports it to all. Thread safety: Announce and SayGoodbye by any thread; callbacks run on the
// watch's thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"

namespace sluice {

struct RankWatchOptions {
  std::chrono::milliseconds beat = std::chrono::milliseconds(250);
  // A rank that has been silent for this long is lost.
  std::chrono::milliseconds silence = std::chrono::milliseconds(3000);
  // Time within which ranks must connect.
  std::chrono::milliseconds connect = std::chrono::seconds(10);
  // Numeric IPv4 address at which rank 0 accepts ranks of other machines; "": all of this machine's
  // addresses. Ranks on one machine use the loopback.
  std::string address = "";
  // Id of the process whose end also ends this group; 0: the process that was this process's parent
  // at the start.
  int parent = 0;
  std::string parent_name = "the launcher";
  // File descriptor from which the lines of the starting process are read; its end means that the
  // starting process has ended. -1: none.
  int control = -1;
  std::function<void(std::string_view line)> on_line = nullptr;
  // Called once, if a rank, the parent or the connection to rank 0 is lost; `reason` names which.
  std::function<void(const std::string& reason)> on_loss;
  // Must end this process. Called on ranks other than 0 after a failure, once rank 0 has ended or
  // has taken too long to end.
  std::function<void()> on_end;
};

class RankWatch {
 public:
  virtual ~RankWatch() = default;

  // Collective over the ranks of `all`. kUnavailable if a rank cannot connect to rank 0.
  static Result<std::unique_ptr<RankWatch>> Start(Communicator& all, RankWatchOptions options);

  // Reports to the other ranks that the group has failed.
  virtual void Announce(const std::string& reason) = 0;
  // Announces that this rank leaves without a failure. All ranks must call it before they end.
  virtual void SayGoodbye() = 0;
  // Returns a rank's name, such as "rank 1 (process 4711 on node7)".
  virtual const std::string& name(int rank) const = 0;
  // Returns the number of ranks on this rank's machine, including itself.
  virtual int ranks_here() const = 0;
};

}  // namespace sluice
