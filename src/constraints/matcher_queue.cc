#include "constraints/matcher_queue.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;
constexpr int kNiceness = 5;

}  // namespace

MatcherQueue::MatcherQueue(size_t mask_words, int num_threads) : mask_words_(mask_words) {
  const MutexLock lock(mutex_);
  try {
    for (int i = 0; i < num_threads; ++i)
      threads_.emplace_back("matchers", kStackBytes, [this] { Work(); });
  } catch (...) {  // a thread could not be started: continues with fewer threads
    const std::string reason = CaughtMessage();
    RunGuarded("constraints", "to report missing threads", [&]() REQUIRES(mutex_) {
      LOG_WARNING("constraints", "{} of {} threads for slow constraints: {}", threads_.size(),
                  num_threads, reason);
    });
  }
}

MatcherQueue::~MatcherQueue() {
  std::vector<StackThread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    threads.swap(threads_);
  }
  wake_.NotifyAll();
  for (StackThread& thread : threads) thread.Join();
}

void MatcherQueue::Submit(const std::shared_ptr<SequenceMatcher>& matcher,
                          std::span<const int32_t> output, uint64_t client) {
  CHECK(!matcher->is_away());
  const MutexLock lock(mutex_);
  if (threads_.empty()) {
    matcher->Fail("the constraint cannot be followed: the system refuses the thread for it");
    any_back_ = true;
    return;
  }
  used_.try_emplace(client, 0);
  waiting_.push_back({matcher, {output.begin(), output.end()}, client});
  matcher->Away();  // called last, because the calls above may throw
  wake_.NotifyOne();
}

void MatcherQueue::WaitForOne(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  MutexLock lock(mutex_);
  while (!any_back_ && back_.WaitUntil(lock, end)) {
  }
  any_back_ = false;
}

bool MatcherQueue::Turn(Job& job, double& seconds) const {
  const auto begin = std::chrono::steady_clock::now();
  bool is_done = false;
  try {
    do {
      if (job.matcher.use_count() == 1) return true;  // no sequence uses the matcher
      is_done = job.matcher->WorkOnce(job.output, mask_words_);
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    } while (!is_done && seconds < kTurnSeconds);
  } catch (...) {
    LogCaught("constraints", "to follow a constraint");
    job.matcher->Fail("the constraint cannot be followed: memory for it is missing");
    return true;
  }
  return is_done;
}

void MatcherQueue::Work() {
  // Lowers the priority of this thread only. If the system refuses, the thread keeps the usual
  // priority.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && waiting_.empty()) wake_.Wait(lock);
    if (stopping_) return;
    const auto next = std::ranges::min_element(
        waiting_, {}, [this](const Job& job) REQUIRES(mutex_) { return used_[job.client]; });
    Jobs taken;
    taken.splice(taken.begin(), waiting_, next);
    ++num_working_;
    lock.Unlock();
    Job& job = taken.front();
    double seconds = 0;
    const bool is_done = Turn(job, seconds);
    lock.Lock();
    --num_working_;
    used_[job.client] += seconds;
    if (is_done) {
      job.matcher->Return();
      taken.clear();
      any_back_ = true;
      back_.NotifyOne();
      if (waiting_.empty() && num_working_ == 0) used_.clear();
    } else if (!stopping_) {
      waiting_.splice(waiting_.end(), taken);
    }
  }
}

}  // namespace sluice
