#include "constraints/constraint_compiler.h"

#include <utility>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/log.h"

namespace sluice {

ConstraintCompiler::ConstraintCompiler(MakeEngine make_engine, int num_threads, size_t cache_bytes)
    : make_engine_(std::move(make_engine)), cache_bytes_(cache_bytes) {
  const MutexLock lock(mutex_);
  try {
    for (int i = 0; i < num_threads; ++i)
      threads_.emplace_back("constraints", kStackBytes, [this, i] { Work(i == 0); });
  } catch (...) {
    // A thread could not be started: continues with fewer threads. Without any thread, Compile
    // fails.
    const std::string reason = CaughtMessage();
    RunGuarded("constraints", "to report missing threads", [&]() REQUIRES(mutex_) {
      LOG_WARNING("constraints", "{} of {} threads to compile constraints: {}", threads_.size(),
                  num_threads, reason);
    });
  }
}

ConstraintCompiler::~ConstraintCompiler() {
  Stop();
}

void ConstraintCompiler::Stop() {
  std::vector<StackThread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.NotifyAll();
  for (StackThread& thread : threads) thread.Join();
}

std::string ConstraintCompiler::KeyOf(const ConstraintSpec& spec) {
  return fmt::format("{}{}{}", static_cast<int>(spec.kind), spec.any_whitespace ? '+' : '-',
                     spec.text);
}

void ConstraintCompiler::Compile(ConstraintSpec spec, OnCompiled done) {
  std::string key = KeyOf(spec);
  std::shared_ptr<const Constraint> constraint;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    if (const auto kept = kept_.find(key); kept != kept_.end()) {
      entries_.splice(entries_.begin(), entries_, kept->second);
      constraint = kept->second->constraint;
    } else if (num_waiting_ < kMaxWaiting && !threads_.empty()) {
      ++num_waiting_;
      const auto [job, is_new] = jobs_.try_emplace(key);
      job->second.waiting.push_back(std::move(done));
      if (is_new) {
        job->second.spec = std::move(spec);
        queue_.push_back(std::move(key));
      }
      wake_.NotifyAll();  // wakes all threads, because some of them do not wait for the queue
      return;
    }
  }
  if (constraint != nullptr) return done(std::move(constraint));
  done(Fail(
      ErrorCode::kUnavailable,
      fmt::format(
          "constraints cannot be compiled now: {} wait, or there are no threads; try again later",
          kMaxWaiting)));
}

void ConstraintCompiler::Keep(const std::string& key,
                              const std::shared_ptr<const Constraint>& constraint) {
  const size_t bytes = constraint->bytes() + key.size();
  if (bytes > cache_bytes_) return;
  entries_.push_front({key, constraint});
  kept_[key] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > cache_bytes_) {
    const Entry& last = entries_.back();
    bytes_ -= last.constraint->bytes() + last.key.size();
    kept_.erase(last.key);
    entries_.pop_back();
  }
}

void ConstraintCompiler::Work(bool makes_engine) {
  if (makes_engine) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && queue_.empty()) wake_.Wait(lock);
      if (stopping_) return;
    }
    std::shared_ptr<const ConstraintEngine> engine;
    // If the engine cannot be created, refuses the waiting specs and retries when the next spec
    // arrives.
    while (!RunGuarded("constraints", "to prepare for constraints",
                       [&] { engine = make_engine_(); })) {
      if (!RefuseWaiting()) return;
    }
    const MutexLock lock(mutex_);
    engine_ = std::move(engine);
    wake_.NotifyAll();
  }
  while (true) {
    std::string key;
    std::shared_ptr<const ConstraintEngine> engine;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && (engine_ == nullptr || queue_.empty())) wake_.Wait(lock);
      if (stopping_) return;
      key = std::move(queue_.front());
      queue_.pop_front();
      engine = engine_;
    }
    const Compiled compiled = CatchToResult([&] { return engine->Compile(SpecOf(key)); });
    Tell(TakeJob(key, compiled), compiled);
  }
}

ConstraintSpec ConstraintCompiler::SpecOf(const std::string& key) {
  const MutexLock lock(mutex_);
  return jobs_.at(key).spec;
}

std::vector<ConstraintCompiler::OnCompiled> ConstraintCompiler::TakeJob(const std::string& key,
                                                                        const Compiled& compiled) {
  const MutexLock lock(mutex_);
  const auto job = jobs_.find(key);
  std::vector<OnCompiled> waiting = std::move(job->second.waiting);
  num_waiting_ -= waiting.size();
  jobs_.erase(job);
  // If caching fails, the constraint is compiled again when needed.
  if (compiled) RunGuarded("constraints", "to keep a constraint", [&] { Keep(key, *compiled); });
  return waiting;
}

void ConstraintCompiler::Tell(const std::vector<OnCompiled>& waiting, const Compiled& compiled) {
  for (const OnCompiled& done : waiting) {
    if (RunGuarded("constraints", "to hand out a constraint", [&] { done(compiled); })) continue;
    // The waiting caller must get an answer in any case. A short message needs no allocation.
    RunGuarded("constraints", "to refuse a constraint",
               [&] { done(Fail(ErrorCode::kResourceExhausted, "no memory")); });
  }
}

bool ConstraintCompiler::RefuseWaiting() {
  const Compiled refused =
      Fail(ErrorCode::kInternal, "constraints cannot be compiled; the log gives the reason");
  while (true) {
    std::string key;
    {
      MutexLock lock(mutex_);
      if (stopping_) return false;
      if (queue_.empty()) break;
      key = std::move(queue_.front());
      queue_.pop_front();
    }
    Tell(TakeJob(key, refused), refused);
  }
  MutexLock lock(mutex_);
  while (!stopping_ && queue_.empty()) wake_.Wait(lock);
  return !stopping_;
}

}  // namespace sluice
