// Data parallelism: several engines with one interface.
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

// Gives each request to one of its engines (router.h). An engine that has stopped computing is
// skipped: its open requests fail within kWatchInterval after the failure is detected, and new
// requests are routed to the other engines. If no engine is healthy, requests are routed to any
// engine that has not failed permanently.
//
// A request without a seed draws the same tokens as with a single engine, whichever engine computes
// it.
//
// Ownership: owns the engines.
class ReplicaEngine final : public Engine {
 public:
  static constexpr std::chrono::seconds kWatchInterval{1};
  // An idle engine whose last steps failed gets a request again after this time, as a test.
  static constexpr std::chrono::seconds kRetryInterval{10};

  // `info`: describes all engines together. `seed`: like EngineConfig::seed. `caches_prefixes`:
  // whether each engine has a prefix cache.
  ReplicaEngine(std::vector<std::unique_ptr<Engine>> engines, EngineInfo info, uint64_t seed,
                bool caches_prefixes);
  ~ReplicaEngine() override;

  const EngineInfo& info() const override { return info_; }
  Result<RequestHandle> Submit(Request request) override;
  void Abort(RequestHandle handle) override;
  void StopSequence(RequestHandle handle, int sequence) override;
  // True while any engine is healthy.
  bool healthy() const override;
  // Not empty once all engines have failed.
  std::string failure() const override;
  bool stalled() const override;
  std::vector<EngineState> states() const override;
  int64_t num_unfinished() const override { return open_.size(); }
  void BeginShutdown() override;
  // True if every engine has reset its cache.
  bool ResetPrefixCache() override;
  void ResetImageRows() override;
  Status SetFrozen(bool frozen) override;
  // The engines load one copy of the weights. They switch one after another, each between two of
  // its steps, and only if all engines are healthy.
  Status StageWeights(const std::filesystem::path& folder) override;
  Status CommitWeights() override;
  void DropStagedWeights() override;
  std::filesystem::path weights_folder() const override {
    return members_.front().engine->weights_folder();
  }
  CacheEventCounts cache_event_counts() const override;
  TierCounts tier_counts() const override;
  // All engines serve the same adapters, from slots that they share.
  Adapters* adapters() override { return members_.front().engine->adapters(); }

  // Number of tokens that the engine still has to compute, according to the router.
  int64_t unfinished_tokens(int engine) const { return router_.unfinished_tokens(engine); }

 private:
  struct Member {
    std::unique_ptr<Engine> engine;
    std::atomic<int64_t> last_given{0};  // in ticks of the clock
  };

  int num_engines() const { return static_cast<int>(members_.size()); }
  std::string NameOf(int i) const;
  // For each engine: whether it may receive a request.
  std::array<bool, kMostEngines> MayBeChosen() const;
  EngineState StateOf(int i) const;
  // Fails the requests of engines that have stopped computing, until the destructor stops it.
  void Watch();
  // Logs whether the health of engine `i` has changed, and fails the requests of a lost engine.
  // Returns whether it is healthy.
  bool LookAt(int i, bool was_healthy);

  const EngineInfo info_;
  const uint64_t base_seed_;
  std::atomic<uint64_t> num_requests_{0};
  Router router_;
  OpenRequests open_;
  std::vector<Member> members_;  // destroyed before router_ and open_, which the engines' sinks use

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread watcher_;  // last member, because it uses all members above
};

}  // namespace sluice
