// Collective operations and messages between the ranks of a group: the contract shared by threads
// of one process (local_group.h), processes and devices.
//
// Only bytes are moved, nothing is summed in transit: a model is divided by output rows, so a
// single rank computes each sum, and results are bit-identical for every number of ranks.
//
// All ranks of a group call the same collective operations (Gather, Broadcast, Split) in the same
// order with matching sizes. Post (or Send) and Receive pair up in the order of their calls.
//
// Failure: an operation that cannot be completed throws GroupError. A failure applies to all ranks
// of a group and to its Splits: every waiting and every later operation throws with the reason of
// the first failure. No wait is unbounded: an operation waits at most the group's deadline for the
// other ranks, then fails the group and names the missing ranks. Only Patience::kIdle waits without
// a deadline.
//
// Thread safety: one thread per rank; Fail may be called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "base/thread_pool.h"

namespace sluice {

// The group has failed; what() names the rank and the reason.
class GroupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Patience {
  kStep,  // inside a step: the group's deadline applies
  kIdle,  // between steps: sleeps without a deadline, until the group fails
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Gathers a row-major array whose columns are divided among the ranks. `mine`: [rows,
  // widths[rank()]], bytes, contiguous. all: [rows, sum of widths], bytes, contiguous, in rank
  // order. It is written only at `root` if given (null is allowed at the others), else at every
  // rank. A width may be 0. `mine` and `all` must not overlap. `widths` and `rows` are the same at
  // all ranks. `pool`: copies large arrays.
  virtual void Gather(ThreadPool& pool, std::span<const int64_t> widths, int64_t rows,
                      const void* mine, void* all, std::optional<int> root = {}) = 0;

  // Copies `bytes` at `data` of `root` to `data` of every other rank. `patience`: how long the
  // others wait for root.
  virtual void Broadcast(void* data, int64_t bytes, int root, Patience patience) = 0;

  // Messages between two ranks arrive in the order in which they were sent. Post returns without
  // waiting for the other rank; `data` must not change until AwaitPosted returns. AwaitPosted waits
  // until at most `most` messages to that rank have not been received.
  virtual void Post(const void* data, int64_t bytes, int to) = 0;
  virtual void AwaitPosted(int to, int64_t most) = 0;
  // Receives a message into `data`. `patience`: how long to wait for the sender.
  virtual void Receive(void* data, int64_t bytes, int from, Patience patience) = 0;
  // Advances posted messages if the transport does not do so in the background. Returns
  // immediately.
  virtual void Progress() {}

  // Sends a message. Returns when `data` may be used again.
  void Send(const void* data, int64_t bytes, int to) {
    Post(data, bytes, to);
    AwaitPosted(to, 0);
  }
  void Receive(void* data, int64_t bytes, int from) { Receive(data, bytes, from, Patience::kStep); }

  // Returns a group that consists of this group's ranks [first, first + count). Exactly those ranks
  // call it. It must not outlive this group.
  virtual std::unique_ptr<Communicator> Split(int first, int count) = 0;

  // Fails the group with the reason "rank 2: <reason>". A later failure does not replace the
  // reason.
  virtual void Fail(const std::string& reason) = 0;
  // Returns the reason of the failure; "" if the group has not failed.
  virtual std::string failure() const = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  const int rank_;
  const int size_;
};

}  // namespace sluice
