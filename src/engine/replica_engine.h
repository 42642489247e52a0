// Several engines behind one front door: data parallelism.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/engine_config.h"
#include "engine/open_requests.h"
#include "engine/router.h"

namespace sluice {

// Gives each request to one of its engines (router.h). An engine that computes no more is passed
// over: its open requests fail, at the latest kWatchInterval after that is known, and new ones go
// to the others. Where no engine is healthy, all that are not lost for good are tried.
//
// A request without a seed draws what it would draw at a single engine, whichever engine it gets.
//
// Ownership: owns the engines.
class ReplicaEngine final : public Engine {
 public:
  static constexpr std::chrono::seconds kWatchInterval{1};
  // An idle engine whose last steps failed gets a request after so long, which shows what it can.
  static constexpr std::chrono::seconds kRetryInterval{10};

  // `info`: of all of them. `seed`: as EngineConfig::seed. `caches_prefixes`: each has a prefix
  // cache.
  ReplicaEngine(std::vector<std::unique_ptr<Engine>> engines, EngineInfo info, uint64_t seed,
                bool caches_prefixes);
  ~ReplicaEngine() override;

  const EngineInfo& info() const override { return info_; }
  Result<RequestHandle> Submit(Request request) override;
  void Abort(RequestHandle handle) override;
  void StopSequence(RequestHandle handle, int sequence) override;
  // While one of them is.
  bool healthy() const override;
  // Once all of them have failed.
  std::string failure() const override;
  bool stalled() const override;
  std::vector<EngineState> states() const override;
  int64_t num_unfinished() const override { return open_.size(); }
  void BeginShutdown() override;
  // True if every engine has reset its cache.
  bool ResetPrefixCache() override;
  Status SetFrozen(bool frozen) override;
  CacheEventCounts cache_event_counts() const override;
  TierCounts tier_counts() const override;
  // Which all engines serve, from slots that they have together.
  Adapters* adapters() override { return members_.front().engine->adapters(); }

  // What an engine has yet to compute, as the router counts it.
  int64_t unfinished_tokens(int engine) const { return router_.unfinished_tokens(engine); }

 private:
  struct Member {
    std::unique_ptr<Engine> engine;
    std::atomic<int64_t> last_given{0};  // ticks of the clock
  };

  int num_engines() const { return static_cast<int>(members_.size()); }
  std::string NameOf(int i) const;
  // By engine, whether a request may go there.
  std::array<bool, kMostEngines> MayBeChosen() const;
  EngineState StateOf(int i) const;
  // Until the end: fails the requests of engines that compute no more.
  void Watch();

  const EngineInfo info_;
  const uint64_t base_seed_;
  std::atomic<uint64_t> num_requests_{0};
  Router router_;
  OpenRequests open_;
  std::vector<Member> members_;  // after what their sinks refer to

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread watcher_;  // last: it uses all of the above
};

}  // namespace sluice
