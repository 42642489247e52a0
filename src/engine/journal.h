// The seam through which what an engine computes is recorded, and computed again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/active_request.h"
#include "engine/engine_plan.h"
#include "scheduler/scheduler.h"

namespace sluice {

class EngineCore;

// What sampling found for a sequence in one round of a step.
struct SampledRow {
  const ActiveSequence* sequence = nullptr;
  int32_t token = 0;        // undefined if it is late or has failed
  bool is_late = false;     // its constraint did not answer within the step
  bool is_slow = false;     // it is held after this token, until its constraint has answered
  bool has_failed = false;  // no token could be sampled: its request fails
};

// What a replay uses of the engine whose thread it runs on.
struct ReplaySeat {
  int64_t vocab_size = 0;
  // Returns a core without requests and with an empty cache; ends the one returned before.
  std::function<Result<EngineCore*>()> fresh_core;
  // Makes what Engine::Submit makes of a request. REQUIRES: request.sink is not null.
  std::function<Result<std::unique_ptr<ActiveRequest>>(RequestHandle handle, Request request,
                                                       uint64_t seed, bool siblings_wait)>
      make_request;
};

// Receives everything that decides what the steps of one engine compute, in the order in which it
// takes effect. Given equal calls, an engine with equal weights computes equal steps and tokens.
//
// What depends on time or on other threads is passed by reference: times, draft tokens, held
// sequences, owed tokens, late and slow rows. A journal that replays replaces these by what was
// recorded; the engine then neither proposes tokens nor waits for constraints.
//
// Thread safety: called on the engine's thread only; must not block. Ownership: outlives the
// engine.
class EngineJournal {
 public:
  virtual ~EngineJournal() = default;

  virtual bool replays() const { return false; }
  // Called once on the engine's thread, in place of its loop, if replays().
  virtual void Replay(const ReplaySeat& /*seat*/) {}

  // A core begins: it has no requests, and its cache is empty.
  virtual void OnStart(const EnginePlan& plan) = 0;
  // `time_us`: the scheduler's time (Scheduler::SetTime).
  virtual void OnAdd(int64_t& time_us, const ActiveRequest& request) = 0;
  // Called only if they have an effect.
  virtual void OnAbort(RequestHandle handle) = 0;
  virtual void OnStop(RequestHandle handle, int sequence) = 0;
  virtual void OnAbortAll() = 0;
  virtual void OnResetCache() = 0;
  // EngineCore::Step was called. It makes any number of plans, and ends one of the steps in flight.
  virtual void OnStep() = 0;
  // Before a plan. `running`: ScheduledSequence::proposed, is_held and owed_tokens may be replaced.
  virtual void OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) = 0;
  virtual void OnPlan(const StepPlan& plan) = 0;
  // A round of sampling is done; a step has one for each draft token that was accepted, and one
  // more. `rows`, except their sequences, may be replaced.
  virtual void OnSampled(std::span<SampledRow> rows) = 0;
  virtual void OnStepFailed(std::string_view reason) = 0;
  // Something happened that a journal does not describe, such as new weights.
  virtual void OnBreak(std::string_view what) = 0;
};

}  // namespace sluice
