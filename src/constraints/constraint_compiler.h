// Compiles constraints on its own threads and caches the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/stack_thread.h"
#include "constraints/constraint.h"

namespace sluice {

// Caches up to `cache_bytes` of compiled constraints, evicting the least recently used; constraints
// in use stay alive. At most kMaxWaiting specs wait. Thread safety: Compile may be called from any
// thread.
class ConstraintCompiler {
 public:
  using Compiled = Result<std::shared_ptr<const Constraint>>;
  using OnCompiled = std::function<void(Compiled)>;
  using MakeEngine = std::function<std::unique_ptr<ConstraintEngine>()>;

  static constexpr size_t kMaxWaiting = 1024;
  // Stack of each thread. Deeper recursion is refused (base/work_budget.h).
  static constexpr size_t kStackBytes = size_t{16} << 20;

  // Starts the threads. One of them creates the engine when the first spec arrives.
  ConstraintCompiler(MakeEngine make_engine, int num_threads, size_t cache_bytes);
  // Calls Stop().
  ~ConstraintCompiler();
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  // Calls `done` once: inside Compile if `spec` is cached, else on one of the threads, where `done`
  // must not block. kUnavailable if too many specs wait, else the errors of
  // ConstraintEngine::Compile. Equal specs are compiled once.
  void Compile(ConstraintSpec spec, OnCompiled done);
  // Waits for running compilations. Drops the waiting specs, and specs that arrive later, without
  // calling `done`. Must not be called from `done`.
  void Stop();

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Constraint> constraint;
  };
  struct Job {
    ConstraintSpec spec;
    std::vector<OnCompiled> waiting;
  };
  static std::string KeyOf(const ConstraintSpec& spec);
  void Work(bool makes_engine);
  ConstraintSpec SpecOf(const std::string& key);
  // Removes the finished job, caches the compiled constraint, and returns the callers waiting for
  // it.
  std::vector<OnCompiled> TakeJob(const std::string& key, const Compiled& compiled);
  static void Tell(const std::vector<OnCompiled>& waiting, const Compiled& compiled);
  // Refuses all waiting specs, then waits for new ones. Returns false if the compiler stops.
  bool RefuseWaiting();
  void Keep(const std::string& key, const std::shared_ptr<const Constraint>& constraint)
      REQUIRES(mutex_);

  const MakeEngine make_engine_;
  const size_t cache_bytes_;
  Mutex mutex_;
  CondVar wake_;
  std::shared_ptr<const ConstraintEngine> engine_ GUARDED_BY(mutex_);
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> kept_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Job> jobs_ GUARDED_BY(mutex_);  // waiting or being compiled
  size_t num_waiting_ GUARDED_BY(mutex_) = 0;  // number of callers whose `done` has not been called
  std::deque<std::string> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<StackThread> threads_ GUARDED_BY(mutex_);
};

}  // namespace sluice
