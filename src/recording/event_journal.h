// Converts an engine's reports to its journal into events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/journal.h"
#include "recording/events.h"

namespace sluice::recording {

// Receives the events of one stream, complete and in order. Must not block.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Appends one event. `bytes`: the event, as AppendEvent writes it.
  virtual void Append(std::string_view bytes) = 0;
};

// Numbers salts from 1 on: equal salts have equal numbers; "" has 0. After kMost salts, all numbers
// are forgotten, which bounds memory. A salt that occurs again later gets a new number.
class SaltNumbers {
 public:
  uint64_t Of(const std::string& salt);

 private:
  static constexpr size_t kMost = 65536;
  std::unordered_map<std::string, uint64_t> numbers_;
  uint64_t next_ = 1;
};

AddEvent MakeAddEvent(int64_t time_us, const ActiveRequest& request, SaltNumbers& salts);
// Sets the decisions of a plan. Reuses the memory of `event`.
void SetDecisions(const StepPlan& plan, PlanEvent& event);
SequenceName NameOf(const ScheduledSequence& sequence);

// Records an engine's reports as events. Thread safety: used by the engine's thread only.
// Ownership: the sink outlives it.
class RecordingJournal final : public EngineJournal {
 public:
  explicit RecordingJournal(EventSink* sink) : sink_(*sink) {}

  void OnStart(const EnginePlan& plan) override;
  void OnAdd(int64_t& time_us, const ActiveRequest& request) override;
  void OnAbort(RequestHandle handle) override { Put(AbortEvent{handle}); }
  void OnStop(RequestHandle handle, int sequence) override { Put(StopEvent{{handle, sequence}}); }
  void OnAbortAll() override { Put(AbortAllEvent{}); }
  void OnResetCache() override { Put(ResetCacheEvent{}); }
  void OnStep() override { Put(StepEvent{}); }
  void OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) override;
  void OnPlan(const StepPlan& plan) override;
  void OnSampled(std::span<SampledRow> rows) override;
  void OnStepFailed(std::string_view reason) override;
  void OnBreak(std::string_view what) override { Put(BreakEvent{std::string(what)}); }

 private:
  template <typename Event>
  void Put(const Event& event) {
    bytes_.clear();
    AppendEvent(bytes_, event);
    sink_.Append(bytes_);
  }

  EventSink& sink_;
  SaltNumbers salts_;
  std::string bytes_;
  PlanEvent plan_;
  SampledEvent sampled_;
};

}  // namespace sluice::recording
