// Tells each process of a group whether the others still live, beside MPI, which does not.
//
// Every rank has a connection to rank 0 (TCP; on one machine over its loopback). A process that
// ends closes it, however it ends. One that is stopped, or whose machine cannot be reached, is
// noticed by its silence: a thread that does nothing else sends a sign of life several times a
// second, however long a step takes. Who learns of a failure tells rank 0, which tells all.
//
// Thread safety: Announce and SayGoodbye by any thread; callbacks come on the watch's thread.
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
  // A rank that was not heard of for so long is lost.
  std::chrono::milliseconds silence = std::chrono::milliseconds(3000);
  // How long ranks may take to connect.
  std::chrono::milliseconds connect = std::chrono::seconds(10);
  // The numeric IPv4 address of this machine at which rank 0 waits for ranks on other machines; "":
  // all of its addresses. Ranks on one machine use the loopback.
  std::string address = "";
  // The process whose end is this group's, or 0: the parent at the start.
  int parent = 0;
  std::string parent_name = "the launcher";
  // Readable while who started the group lives, who writes lines to it; -1: none.
  int control = -1;
  std::function<void(std::string_view line)> on_line = nullptr;
  // A rank, the parent or the connection to rank 0 is lost; the reason names it. Called once.
  std::function<void(const std::string& reason)> on_loss;
  // On ranks other than 0, after a failure: rank 0 has ended, or took too long to. It has to end
  // this process.
  std::function<void()> on_end;
};

class RankWatch {
 public:
  virtual ~RankWatch() = default;

  // Collective over `all`. kUnavailable where a rank cannot connect to rank 0.
  static Result<std::unique_ptr<RankWatch>> Start(Communicator& all, RankWatchOptions options);

  // The group has failed for this reason: tells the others.
  virtual void Announce(const std::string& reason) = 0;
  // This rank leaves in order; to be called by all before they end.
  virtual void SayGoodbye() = 0;
  // "rank 1 (process 4711 on node7)".
  virtual const std::string& name(int rank) const = 0;
  // Ranks on this rank's machine, itself among them.
  virtual int ranks_here() const = 0;
};

}  // namespace sluice
