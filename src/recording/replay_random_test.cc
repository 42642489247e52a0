// Recorded random runs of the engine are replayed with equal steps, preemptions and tokens.
#include <cstdlib>

#include "engine/engine_random_testing.h"
#include "recording/event_journal.h"
#include "recording/replay.h"

namespace sluice::recording {
namespace {

// Keeps the events of one stream.
class EventList final : public EventSink {
 public:
  void Append(std::string_view bytes) override { bytes_ += bytes; }

  std::vector<RecordedEvent> events() const {
    std::vector<RecordedEvent> events;
    std::string_view rest = bytes_;
    RecordedEvent event;
    while (TakeEvent(rest, event.kind, event.fields)) events.push_back(event);
    EXPECT_TRUE(rest.empty());
    return events;
  }

 private:
  std::string bytes_;
};

class RecordedRandomEngine : public testing::RandomEngine {
 protected:
  EngineJournal* Journal() override { return &journal_; }

  // Returns a seat for an engine with the recorded configuration, but without a draft model.
  ReplaySeat Seat() {
    replay_plan_ = plan_;
    replay_plan_.config.draft = {};
    replay_plan_.draft.reset();
    SpeculationConfig& speculation = replay_plan_.config.speculation;
    if (plan_.scheduler.max_proposed_tokens > 0 && speculation.num_tokens == 0) {
      speculation.method = SpeculationConfig::Method::kNgram;
      speculation.num_tokens = 1;
    }
    const SchedulerLimits& limits = plan_.scheduler;
    replay_model_ = std::make_unique<testing::FakeModel>(limits.block_size, plan_.num_blocks,
                                                         limits.groups, plan_.num_state_slots);
    replay_model_->most_in_flight = model_->most_in_flight;
    replay_model_->keeps_drawn = model_->keeps_drawn;
    replay_model_->draws = model_->draws;
    replay_model_->period = model_->period;
    return {.vocab_size = testing::FakeModel::kVocab,
            .fresh_core = [this]() -> Result<EngineCore*> {
              replay_core_.reset();
              ASSIGN_OR_RETURN(replay_core_,
                               EngineCore::Create(replay_plan_, *replay_model_, *cache_, pool_,
                                                  nullptr, nullptr, [] {}));
              replay_core_->UseJournal(replay_.get());
              return replay_core_.get();
            },
            .make_request = [](RequestHandle handle, Request request, uint64_t seed,
                               bool siblings_wait) -> Result<std::unique_ptr<ActiveRequest>> {
              const RequestLimits limits{testing::FakeModel::kVocab, kMaxModelLen};
              RETURN_IF_ERROR(CheckRequest(request, limits));
              return MakeActiveRequest(handle, std::move(request), limits,
                                       testing::kRandomEndTokens, seed, siblings_wait);
            }};
  }

  const ReplayResult& Replay(ReplayOptions options) {
    replay_ = std::make_unique<ReplayJournal>(events_.events(), std::move(options));
    replay_->Replay(Seat());
    replay_core_.reset();
    return replay_->result();
  }

  EventList events_;
  RecordingJournal journal_{&events_};
  EnginePlan replay_plan_;
  std::unique_ptr<testing::FakeModel> replay_model_;
  std::unique_ptr<ReplayJournal> replay_;
  std::unique_ptr<EngineCore> replay_core_;
};

TEST_P(RecordedRandomEngine, ReplaysEqual) {
  Run();
  ASSERT_FALSE(HasFailure());
  const ReplayResult result = Replay({});
  EXPECT_EQ(result.note, "");
  EXPECT_FALSE(result.first) << result.first->Text();
  EXPECT_EQ(result.num_requests, std::ssize(asked_));
  EXPECT_EQ(result.num_preemptions, account_.preemptions);
  EXPECT_GT(result.num_steps, 0);
}

// As long as no request makes others fail, answers are equal however the engine schedules them.
TEST_P(RecordedRandomEngine, GivesEqualAnswersAlone) {
  has_poison_ = false;
  Run();
  ASSERT_FALSE(HasFailure());
  ReplayOptions options;
  options.follows_steps = false;
  const ReplayResult result = Replay(options);
  EXPECT_EQ(result.note, "");
  EXPECT_FALSE(result.first) << result.first->Text();
  EXPECT_EQ(result.num_requests, std::ssize(asked_));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RecordedRandomEngine, ::testing::Range(0u, 120u));

// Tests only a run and its replay.
class HeavyRecordedRandomEngine : public RecordedRandomEngine {};
TEST_P(HeavyRecordedRandomEngine, ReplaysEqual) {
  SetLogLevel(LogLevel::kError);
  has_poison_ = false;  // failing steps are tested above
  Run();
  ASSERT_FALSE(HasFailure());
  const ReplayResult result = Replay({});
  SetLogLevel(LogLevel::kInfo);
  EXPECT_EQ(result.note, "");
  EXPECT_FALSE(result.first) << result.first->Text();
  EXPECT_EQ(result.num_preemptions, account_.preemptions);
}
INSTANTIATE_TEST_SUITE_P(Seeds, HeavyRecordedRandomEngine, ::testing::Range(1000u, 11000u));

class ReplayTest : public RecordedRandomEngine {};

TEST_P(ReplayTest, NamesTheFirstDifferentToken) {
  has_poison_ = false;
  Run();
  ASSERT_FALSE(HasFailure());
  // Another model, whose answers repeat with another period.
  const size_t period = model_->period;
  model_->period = period == 3 ? 4 : 3;
  const ReplayResult result = Replay({});
  model_->period = period;
  ASSERT_TRUE(result.first);
  EXPECT_EQ(result.first->kind, Difference::Kind::kToken) << result.first->Text();
  EXPECT_GT(result.first->handle, 0u);
  EXPECT_NE(result.first->expected, result.first->found);
  EXPECT_EQ(result.note, "");
  EXPECT_GT(result.num_different_answers, 0);
  // The replay compares all steps, because recorded tokens replace different ones.
  EXPECT_EQ(result.num_requests, std::ssize(asked_));
}

TEST_P(ReplayTest, NamesTheFirstDifferentPlan) {
  Run();
  ASSERT_FALSE(HasFailure());
  // Changes one decision: the last plan with a slice computes one more token.
  std::string changed;
  const std::vector<RecordedEvent> events = events_.events();
  size_t last = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind == EventKind::kPlan &&
        !ReadEvent<PlanEvent>(events[i].fields)->slices.empty())
      last = i;
  }
  PlanEvent plan = *ReadEvent<PlanEvent>(events[last].fields);
  ++plan.slices.back().num_tokens;
  AppendEvent(changed, plan);
  std::vector<RecordedEvent> others = events;
  std::string_view rest = changed;
  ASSERT_TRUE(TakeEvent(rest, others[last].kind, others[last].fields));
  replay_ = std::make_unique<ReplayJournal>(others, ReplayOptions());
  replay_->Replay(Seat());
  const ReplayResult& result = replay_->result();
  ASSERT_TRUE(result.first);
  EXPECT_EQ(result.first->kind, Difference::Kind::kPlan);
  EXPECT_EQ(result.first->handle, plan.slices.back().sequence.handle);
  EXPECT_EQ(result.first->expected.substr(0, result.first->expected.find(' ')),
            std::to_string(plan.slices.back().num_tokens));
  replay_core_.reset();
}

// Changed bytes may end a replay with a note or a difference, but must not end the program.
TEST_P(ReplayTest, SurvivesChangedEvents) {
  has_poison_ = false;
  Run();
  ASSERT_FALSE(HasFailure());
  for (int round = 0; round < 20; ++round) {
    std::vector<RecordedEvent> events = events_.events();
    std::vector<std::string> changed;
    changed.reserve(8);
    for (int64_t i = Pick(1, 8); i > 0; --i) {
      RecordedEvent& event = events[static_cast<size_t>(Pick(0, std::ssize(events) - 1))];
      if (event.fields.empty()) continue;
      std::string& fields = changed.emplace_back(event.fields);
      fields[static_cast<size_t>(Pick(0, std::ssize(fields) - 1))] =
          static_cast<char>(Pick(0, 255));
      event.fields = fields;
    }
    if (OneIn(2)) events.erase(events.begin() + Pick(1, std::ssize(events) - 1));
    ReplayOptions options;
    options.follows_steps = OneIn(2);
    replay_ = std::make_unique<ReplayJournal>(events, options);
    replay_->Replay(Seat());
    replay_core_.reset();
  }
}

TEST_P(ReplayTest, StopsWhereAskedTo) {
  Run();
  ReplayOptions options;
  options.until = 3;
  const ReplayResult result = Replay(options);
  EXPECT_EQ(result.num_steps, 3);
  EXPECT_FALSE(result.first);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReplayTest, ::testing::Range(0u, 10u));

}  // namespace
}  // namespace sluice::recording
