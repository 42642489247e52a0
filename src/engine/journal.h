// The interface through which an engine's computation is recorded and replayed.
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

// The result of sampling for a sequence in one round of a step.
struct SampledRow {
  const ActiveSequence* sequence = nullptr;
  int32_t token = 0;     // undefined if it is late or has failed
  bool is_late = false;  // whether its constraint's mask was not ready within the step
  // Whether the sequence must wait after this token until its constraint's mask is ready.
  bool is_slow = false;
  bool has_failed = false;  // whether no token could be sampled, so that its request fails
};

// What a replay on an engine's thread may use of the engine.
struct ReplaySeat {
  int64_t vocab_size = 0;
  // Returns a core without requests and with an empty cache. Destroys the core that it returned
  // before.
  std::function<Result<EngineCore*>()> fresh_core;
  // Converts a request as Engine::Submit does. REQUIRES: request.sink is not null.
  std::function<Result<std::unique_ptr<ActiveRequest>>(RequestHandle handle, Request request,
                                                       uint64_t seed, bool siblings_wait)>
      make_request;
};

// Receives all events that determine what the steps of one engine compute, in the order in which
// they take effect. Two engines with equal weights that receive equal calls compute equal steps and
// tokens.
//
// Everything that depends on time or on other threads is passed by reference: times, draft tokens,
// held sequences, owed tokens, late and slow rows. A journal that replays replaces these by the
// recorded values; the engine then neither proposes tokens nor waits for constraints.
//
// Thread safety: called on the engine's thread only; must not block. Ownership: outlives the
// engine.
class EngineJournal {
 public:
  virtual ~EngineJournal() = default;

  virtual bool replays() const { return false; }
  // Called once on the engine's thread, instead of its loop, if replays().
  virtual void Replay(const ReplaySeat& /*seat*/) {}

  // A core has started: it has no requests, and its cache is empty.
  virtual void OnStart(const EnginePlan& plan) = 0;
  // A request was added. `time_us`: the scheduler's time (Scheduler::SetTime).
  virtual void OnAdd(int64_t& time_us, const ActiveRequest& request) = 0;
  // The methods below are called only when the event has an effect.
  virtual void OnAbort(RequestHandle handle) = 0;
  virtual void OnStop(RequestHandle handle, int sequence) = 0;
  virtual void OnAbortAll() = 0;
  virtual void OnResetCache() = 0;
  // EngineCore::Step was called. It may plan any number of steps and ends one of the steps in
  // flight.
  virtual void OnStep() = 0;
  // A plan is about to be made. The journal may replace ScheduledSequence::proposed, is_held and
  // owed_tokens of `running`.
  virtual void OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) = 0;
  virtual void OnPlan(const StepPlan& plan) = 0;
  // A round of sampling has ended. A step has one round for each accepted draft token, and one
  // more. The journal may replace `rows`, except their sequences.
  virtual void OnSampled(std::span<SampledRow> rows) = 0;
  virtual void OnStepFailed(std::string_view reason) = 0;
  // The engine was changed in a way that a journal does not describe, for example by new weights.
  virtual void OnBreak(std::string_view what) = 0;
};

}  // namespace sluice
