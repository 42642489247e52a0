// Repeats the computations of a recording and compares the results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/journal.h"
#include "recording/events.h"

namespace sluice::recording {

// The first place where a replay differs from its recording.
struct Difference {
  enum class Kind {
    kPlan,      // the engine's plan, or the decisions of a step
    kToken,     // a token of an answer
    kFailure,   // a step or a request failed in the recording or in the replay, but not in both
    kRecording  // the recording cannot be replayed beyond this point
  };
  Kind kind = Kind::kPlan;
  int64_t step = 0;      // number of steps that began before the difference
  uint64_t handle = 0;   // the request's handle; 0: no request is concerned
  std::string id = {};   // the request's id; "": no request is concerned
  int32_t sequence = 0;  // index of the request's sequence
  int64_t position = 0;  // kToken: index of the token in the answer
  std::string expected = {}, found = {};

  // Returns, for example, "request a, sequence 0, token 3: expected 12, found 14 (step 7)".
  std::string Text() const;
};

struct ReplayOptions {
  // Whether steps and decisions must equal the recorded ones. If not, only answers are compared:
  // each request is added at its recorded position among the events, and the engine plans its own
  // steps.
  bool follows_steps = true;
  std::optional<int64_t> until;  // stop after this many steps
  std::set<uint64_t> only;       // handles of the requests to replay; empty: all
  // Whether to end at the first difference. If not, different tokens are counted. With
  // follows_steps, the recorded token then replaces the different one.
  bool stops_at_difference = false;
};

struct ReplayResult {
  int64_t num_steps = 0;
  int64_t num_requests = 0;
  int64_t num_answers = 0;  // sequences whose tokens were compared
  int64_t num_different_answers = 0;
  int64_t num_tokens = 0;  // number of tokens compared
  // Number of sequences with constraints, whose tokens were taken from the recording.
  int64_t num_unchecked_answers = 0;
  int64_t num_preemptions = 0;
  int64_t prefix_hits = 0;
  std::optional<Difference> first;
  std::string note;     // why the replay ended earlier than the recording; "" if it did not
  PlanEvent last_plan;  // the plan of the last step, for use with `until`
};

// An event of one engine. A view into the recording.
struct RecordedEvent {
  EventKind kind = EventKind::kStart;
  std::string_view fields;
};

// Replays a recording on an engine's thread. Thread safety: construct it, let one engine run it,
// then read result().
class ReplayJournal final : public EngineJournal {
 public:
  ReplayJournal(std::vector<RecordedEvent> events, ReplayOptions options);

  bool replays() const override { return true; }
  // May be called again after set_options.
  void Replay(const ReplaySeat& seat) override;
  void set_options(ReplayOptions options) { options_ = std::move(options); }
  const ReplayResult& result() const { return result_; }

  void OnStart(const EnginePlan& plan) override;
  void OnAdd(int64_t& time_us, const ActiveRequest& request) override;
  void OnAbort(RequestHandle /*handle*/) override {}
  void OnStop(RequestHandle /*handle*/, int /*sequence*/) override {}
  void OnAbortAll() override {}
  void OnResetCache() override {}
  void OnStep() override {}
  void OnPlanning(int64_t& time_us, std::span<ScheduledSequence* const> running) override;
  void OnPlan(const StepPlan& plan) override;
  void OnSampled(std::span<SampledRow> rows) override;
  void OnStepFailed(std::string_view reason) override;
  void OnBreak(std::string_view /*what*/) override {}

 private:
  // A recorded answer, and whether the replay differs from it.
  struct Answer {
    std::vector<int32_t> tokens;
    bool is_different = false, is_compared = false;
  };
  using Key = std::pair<uint64_t, int32_t>;

  void Run(const ReplaySeat& seat);
  // Applies the event at next_. Returns whether the replay continues.
  bool Apply(const ReplaySeat& seat);
  bool StartCore(const ReplaySeat& seat);
  bool Add(const ReplaySeat& seat, const AddEvent& event);
  bool Step();
  // Takes the event at next_. If it has another kind or is damaged, records a difference and
  // returns nullopt.
  template <typename Event>
  std::optional<Event> Take();
  void ReadAnswers();
  // Records a difference; only the first one is kept.
  void Differ(Difference difference);
  void Stop(std::string note);
  const std::string& IdOf(uint64_t handle) const;
  // Compares a sampled row with the recorded token. If `replaces`, the row gets the recorded token.
  void CompareToken(SampledRow& row, int32_t recorded, bool replaces);
  void SampleFreely(std::span<SampledRow> rows);
  // Returns a difference of this kind at the row's request, sequence and position.
  Difference At(const SampledRow& row, Difference::Kind kind) const;

  const std::vector<RecordedEvent> events_;
  ReplayOptions options_;

  ReplayResult result_;
  size_t next_ = 0;  // index of the next event
  bool ended_ = false;
  EngineCore* core_ = nullptr;
  int64_t vocab_size_ = 0;
  int64_t last_time_us_ = 0;
  std::map<uint64_t, std::string> ids_;  // ids of the added requests, by handle
  std::set<uint64_t> unchecked_;         // requests whose tokens are taken from the recording
  std::map<Key, Answer> answers_;
  PlanEvent planning_;  // the plan being replayed
  bool has_planning_ = false;
  PlanEvent found_;
};

}  // namespace sluice::recording
