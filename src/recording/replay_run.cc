#include "recording/replay_run.h"

#include <future>
#include <utility>

#include "engine/engine.h"

namespace sluice::recording {
namespace {

// Runs the ReplayWork on the engine's thread, and passes the engine's reports to the ReplayJournal.
class WorkingJournal final : public EngineJournal {
 public:
  WorkingJournal(std::vector<RecordedEvent> events, const ReplayWork& work)
      : replay_(std::move(events), {}), work_(work) {}

  std::future<void> done() { return done_.get_future(); }

  bool replays() const override { return true; }
  void Replay(const ReplaySeat& seat) override {
    work_(replay_, seat);
    done_.set_value();
  }
  void OnStart(const EnginePlan& plan) override { replay_.OnStart(plan); }
  void OnAdd(int64_t& time_us, const ActiveRequest& request) override {
    replay_.OnAdd(time_us, request);
  }
  void OnAbort(RequestHandle /*handle*/) override {}
  void OnStop(RequestHandle /*handle*/, int /*sequence*/) override {}
  void OnAbortAll() override {}
  void OnResetCache() override {}
  void OnStep() override {}
  void OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) override {
    replay_.OnPlanning(time_us, running);
  }
  void OnPlan(const StepPlan& plan) override { replay_.OnPlan(plan); }
  void OnSampled(std::span<SampledRow> rows) override { replay_.OnSampled(rows); }
  void OnStepFailed(std::string_view reason) override { replay_.OnStepFailed(reason); }
  void OnBreak(std::string_view /*what*/) override {}

 private:
  ReplayJournal replay_;
  const ReplayWork& work_;
  std::promise<void> done_;
};

}  // namespace

Status RunOnEngine(const EngineConfig& config, std::vector<RecordedEvent> events,
                   const ReplayWork& work) {
  WorkingJournal journal(std::move(events), work);
  std::future<void> done = journal.done();
  Engine::Hooks hooks;
  hooks.journal_of = [&journal](int /*engine*/) { return &journal; };
  auto engine = Engine::Create(config, std::move(hooks));
  if (!engine) return tl::unexpected(std::move(engine).error());
  done.wait();
  return {};
}

}  // namespace sluice::recording
