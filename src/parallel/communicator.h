// What the ranks of a group say to each other: the contract over threads of one process
// (local_group.h), processes and devices.
//
// Only whole numbers travel, nothing is summed on the way: a model is cut by output rows, so every
// sum is one rank's alone, and results have the same bits for every number of ranks.
//
// All ranks of a group call the same collective operations (Gather, Broadcast, Split) in the same
// order with matching sizes; Post, or Send, and Receive pair up in the order of their calls.
//
// Failure: an operation that cannot be completed throws GroupError. A group that failed once has
// failed for all of its ranks, those of its Splits included: every waiting and every later
// operation throws, with the reason of the first failure. Nothing waits without end: an operation
// that began waits at most the group's deadline for the others, then fails the group with the names
// of the ranks that are missing; only Patience::kIdle waits for work to come.
//
// Thread safety: one thread a rank, but Fail, which any thread may call.
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
  kStep,  // inside a step: the group's deadline holds
  kIdle,  // between steps: as long as it takes, asleep, until the group fails
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Puts a row-major array together whose columns are cut among the ranks. `mine`: dense [rows]
  // of widths[rank()] bytes. all: dense [rows] of all widths together, in the order of the ranks;
  // written at `root` alone where one is given (elsewhere it may be null), else at every rank. A
  // width may be 0. `mine` and `all` do not overlap. `widths` and `rows` are the same at all ranks.
  // `pool`: copies large arrays.
  virtual void Gather(ThreadPool& pool, std::span<const int64_t> widths, int64_t rows,
                      const void* mine, void* all, std::optional<int> root = {}) = 0;

  // `bytes` at `data` of `root` become those of every rank. At the others `patience` says how long
  // root may take to come.
  virtual void Broadcast(void* data, int64_t bytes, int root, Patience patience) = 0;

  // Messages between two ranks come in the order in which they were sent.
  // Post returns without waiting for the other rank: `data` stays as it is until AwaitPosted, which
  // returns once all messages to that rank but the last `most` have been taken over.
  virtual void Post(const void* data, int64_t bytes, int to) = 0;
  virtual void AwaitPosted(int to, int64_t most) = 0;
  // `patience` says how long the other rank may take to send.
  virtual void Receive(void* data, int64_t bytes, int from, Patience patience) = 0;
  // Lets posted messages go on where they do not by themselves; returns at once.
  virtual void Progress() {}

  // Returns once `data` may be used again.
  void Send(const void* data, int64_t bytes, int to) {
    Post(data, bytes, to);
    AwaitPosted(to, 0);
  }
  void Receive(void* data, int64_t bytes, int from) { Receive(data, bytes, from, Patience::kStep); }

  // The group of ranks [first, first + count) of this one; called by all of those and no others.
  // It must not outlive this one.
  virtual std::unique_ptr<Communicator> Split(int first, int count) = 0;

  // Fails the group: "rank 2: <reason>". The first failure's reason stays.
  virtual void Fail(const std::string& reason) = 0;
  // Why the group has failed; empty while it has not.
  virtual std::string failure() const = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  const int rank_;
  const int size_;
};

}  // namespace sluice
