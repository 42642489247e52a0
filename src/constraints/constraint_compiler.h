// Compiles constraints on threads of its own and keeps what was compiled.
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

// Thread safety: Compile may be called from any thread. Memory: compiled constraints of at most
// `cache_bytes`, the least recently used go first, those in use live on; at most kMaxWaiting specs
// wait.
class ConstraintCompiler {
 public:
  using Compiled = Result<std::shared_ptr<const Constraint>>;
  using OnCompiled = std::function<void(Compiled)>;
  using MakeEngine = std::function<std::unique_ptr<ConstraintEngine>()>;

  static constexpr size_t kMaxWaiting = 1024;
  // Stack of each thread; deeper recursion is refused (base/work_budget.h).
  static constexpr size_t kStackBytes = size_t{16} << 20;

  // Starts the threads; one of them makes the engine when the first spec comes.
  ConstraintCompiler(MakeEngine make_engine, int num_threads, size_t cache_bytes);
  // As Stop().
  ~ConstraintCompiler();
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  // Calls `done` once: at once where `spec` is kept, else from one of the threads, which it must
  // not hold up. kUnavailable if too many wait, else the errors of ConstraintEngine::Compile. Specs
  // that are equal are compiled once.
  void Compile(ConstraintSpec spec, OnCompiled done);
  // Waits for what is being compiled; specs that wait, now or later, are dropped without a call.
  // Not to be called from `done`.
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
  // Who waits for the job, which is over; keeps what was compiled.
  std::vector<OnCompiled> TakeJob(const std::string& key, const Compiled& compiled);
  static void Tell(const std::vector<OnCompiled>& waiting, const Compiled& compiled);
  // Refuses all that wait, and waits for more. False once this ends.
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
  size_t num_waiting_ GUARDED_BY(mutex_) = 0;                     // calls of `done` to be made
  std::deque<std::string> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<StackThread> threads_ GUARDED_BY(mutex_);
};

}  // namespace sluice
