// The engine's contract when several ranks compute its steps over a simulated network. As between
// processes, steps and results are sent as messages, which are delayed. Ranks stall, die or are
// disconnected. While the group lives, every request gets the tokens that a single rank computes.
// When the group ends, every request gets exactly one end, whose reason names a lost rank, and
// every rank ends.
#include <thread>

#include <gmock/gmock.h>

#include "engine/engine_random_testing.h"
#include "models/message_step_channel.h"
#include "models/rank_steps.h"
#include "models/shard.h"
#include "parallel/fake_wire_testing.h"
#include "parallel/mpi_group.h"

namespace sluice {
namespace {

using testing::FakeModel;
using testing::FakeWire;
using testing::RandomEngine;
using testing::RankDied;
using testing::WireFaults;

// A rank's part of the vocabulary.
RowRange WordsOf(const Communicator& all) {
  return CutRows(FakeModel::kVocab, all.rank(), all.size());
}

// A tensor parallel rank of a FakeModel: it stores the state of all tokens, but returns only its
// part of the logits.
class FakeShare final : public Model {
 public:
  FakeShare(Communicator& all, FakeModel& model)
      : Model(FakeModel::Config()), all_(all), model_(model) {}

  void Forward(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    const auto rows = static_cast<int64_t>(input.logit_rows.size());
    whole_.assign(static_cast<size_t>(rows * FakeModel::kVocab), 0);
    model_.Forward(pool, input, cache, whole_.data());
    std::vector<int64_t> widths;
    for (int rank = 0; rank < all_.size(); ++rank)
      widths.push_back(CutRows(FakeModel::kVocab, rank, all_.size()).size() *
                       int64_t{sizeof(float)});
    const RowRange words = WordsOf(all_);
    std::vector<float> mine;
    for (int64_t row = 0; row < rows; ++row) {
      const auto from = whole_.begin() + row * FakeModel::kVocab;
      mine.insert(mine.end(), from + words.begin, from + words.end);
    }
    all_.Gather(pool, widths, rows, mine.data(), logits, /*root=*/0);
  }

 private:
  Communicator& all_;
  FakeModel& model_;
  std::vector<float> whole_;
};

// A pipeline stage of a FakeModel: it adds its part of the logits to those that it sends on. The
// first stage has the complete logits when it finishes the step.
class FakeStage final : public Model {
 public:
  FakeStage(Communicator& all, FakeModel& model)
      : Model(FakeModel::Config()),
        all_(all),
        model_(model),
        begun_(static_cast<size_t>(all.size())) {}

  int steps_in_flight() const override { return all_.size(); }
  void Forward(ThreadPool&, const StepInput&, KvCache&, float*) override {}
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* results) override {
    Begun& begun = begun_[static_cast<size_t>(num_begun_++ % all_.size())];
    all_.AwaitPosted(Next(), all_.size() - 1);
    const size_t size = input.logit_rows.size() * FakeModel::kVocab;
    begun.results = results;
    begun.handed.assign(size + 1, 0);  // a message is sent even if the step has no rows
    if (all_.rank() > 0) Receive(begun, all_.rank() - 1);
    whole_.assign(size, 0);
    model_.Forward(pool, input, cache, whole_.data());
    const RowRange words = WordsOf(all_);
    for (size_t i = 0; i < size; ++i) {
      const auto word = static_cast<int64_t>(i % FakeModel::kVocab);
      if (word >= words.begin && word < words.end) begun.handed[i] = whole_[i];
    }
    all_.Post(begun.handed.data(), std::ssize(begun.handed) * int64_t{sizeof(float)}, Next());
  }
  void Finish(ThreadPool&) override {
    Begun& begun = begun_[static_cast<size_t>(num_finished_++ % all_.size())];
    if (all_.rank() > 0) return;
    all_.AwaitPosted(Next(), num_begun_ - num_finished_);
    Receive(begun, all_.size() - 1);
    std::copy(begun.handed.begin(), begun.handed.end() - 1, begun.results);
  }

 private:
  struct Begun {
    float* results = nullptr;
    std::vector<float> handed;
  };

  int Next() const { return (all_.rank() + 1) % all_.size(); }
  void Receive(Begun& begun, int from) {
    all_.Receive(begun.handed.data(), std::ssize(begun.handed) * int64_t{sizeof(float)}, from);
  }

  Communicator& all_;
  FakeModel& model_;
  std::vector<Begun> begun_;
  int64_t num_begun_ = 0, num_finished_ = 0;
  std::vector<float> whole_;
};

// Rank 0's model, with the other ranks as threads.
class FakeRanks final : public Model {
 public:
  struct Limits {
    StepLimits step;
    std::vector<AttentionSpan> groups;
    size_t period = 0;
    int steps_in_flight = 1;  // if more than 1, ranks are pipeline stages
    std::chrono::seconds deadline{1};
  };

  FakeRanks(int size, uint64_t seed, FakeWire::Duration most_delay, const WireFaults& faults,
            const Limits& limits, FakeModel& model)
      : Model(FakeModel::Config()), wire_(size, seed, most_delay, faults), limits_(limits) {
    for (int rank = 1; rank < size; ++rank) threads_.emplace_back([this, rank] { Follow(rank); });
    wire_.Enter(0);
    group_ = Join();
    channel_ = MakeMessageStepChannel(group_->all(), limits_.step, limits_.steps_in_flight);
    share_ = ShareOf(group_->all(), model);
  }
  ~FakeRanks() override {
    try {
      channel_->Close();
    } catch (const GroupError&) {  // NOLINT(bugprone-empty-catch)
    }
    wire_.Leave();
    for (std::thread& thread : threads_) thread.join();
  }

  void Forward(ThreadPool&, const StepInput&, KvCache&, float*) override {}
  int steps_in_flight() const override { return limits_.steps_in_flight; }
  void Begin(ThreadPool& pool, const StepInput& input, KvCache& cache, float* logits) override {
    LeadBegin(group_->all(), *channel_, *share_, pool, input, cache, logits);
  }
  void Finish(ThreadPool& pool) override { LeadFinish(group_->all(), *channel_, *share_, pool); }
  Status CheckAlive() override {
    const std::string reason = group_->all().failure();
    if (reason.empty()) return {};
    return Fail(ErrorCode::kUnavailable, reason);
  }
  FakeWire& wire() { return wire_; }

 private:
  std::unique_ptr<MpiGroup> Join() {
    auto group =
        *MpiGroup::Join(FakeWire::Table(), {.deadline = limits_.deadline, .clock = &wire_});
    wire_.OnTold([all = group.get()](const std::string& reason) { all->FailAs(reason); });
    group->OnFailure([this](const std::string& reason) { wire_.Tell(reason); });
    return group;
  }
  std::unique_ptr<Model> ShareOf(Communicator& all, FakeModel& model) const {
    if (limits_.steps_in_flight > 1) return std::make_unique<FakeStage>(all, model);
    return std::make_unique<FakeShare>(all, model);
  }
  void Follow(int rank) {
    wire_.Enter(rank);
    try {
      const std::unique_ptr<MpiGroup> group = Join();
      FakeModel model(static_cast<int>(limits_.step.block_size), limits_.step.num_blocks,
                      limits_.groups);
      model.period = limits_.period;
      const std::unique_ptr<Model> share = ShareOf(group->all(), model);
      const auto channel =
          MakeMessageStepChannel(group->all(), limits_.step, limits_.steps_in_flight);
      ThreadPool pool(1);
      KvCache none = *KvCache::Allocate({.num_kv_heads = 1, .head_dim = 32, .block_size = 1}, 1, 1);
      FollowSteps(group->all(), *channel, *share, pool, none);
    } catch (const GroupError&) {  // NOLINT(bugprone-empty-catch)
    } catch (const RankDied&) {    // NOLINT(bugprone-empty-catch)
    }
    wire_.Leave();
  }

  FakeWire wire_;
  const Limits limits_;
  std::unique_ptr<MpiGroup> group_;
  std::unique_ptr<StepChannel> channel_;
  std::unique_ptr<Model> share_;
  std::vector<std::thread> threads_;
};

class RandomRanks : public RandomEngine {
 protected:
  ~RandomRanks() override { core_.reset(); }

  void OpenFlights(SchedulerLimits& limits) override {
    size_ = static_cast<int>(Pick(2, 4));
    if (OneIn(2)) limits.steps_in_flight = limits.num_stages = size_;
  }
  Model& ServedModel() override {
    has_poison_ = false;
    model_->draws = false;
    const int size = size_;
    faults_ = RandomFaults(size);
    FakeRanks::Limits limits;
    limits.step.max_rows = plan_.scheduler.max_num_batched_tokens;
    limits.step.max_slices = plan_.scheduler.max_num_seqs;
    limits.step.max_context = kMaxModelLen + 1;
    limits.step.max_logit_rows = plan_.max_logit_rows();
    limits.step.block_size = plan_.scheduler.block_size;
    limits.step.num_groups = static_cast<int64_t>(plan_.scheduler.groups.size());
    limits.step.num_blocks = plan_.num_blocks;
    limits.step.vocab_size = FakeModel::kVocab;
    limits.groups = plan_.scheduler.groups;
    limits.period = model_->period;
    limits.steps_in_flight = model_->most_in_flight;
    model_->most_in_flight = 1;
    // Shorter or longer than the time after which the watch (rank_watch.h) reports a silent rank as
    // lost.
    limits.deadline = deadline_ = std::chrono::seconds(OneIn(2) ? 1 : 10);
    ranks_ = std::make_unique<FakeRanks>(size, random_(), std::chrono::milliseconds(Pick(0, 20)),
                                         faults_, limits, *model_);
    return *ranks_;
  }
  bool may_lose_ranks() const override { return faults_.kind != WireFaults::Kind::kNone; }
  bool has_lost_ranks() override { return !ranks_->CheckAlive(); }

  WireFaults RandomFaults(int size) {
    WireFaults faults;
    faults.kind = static_cast<WireFaults::Kind>(Pick(0, 3));
    faults.rank = static_cast<int>(Pick(1, size - 1));
    faults.operation = Pick(0, 400);
    faults.stall = std::chrono::milliseconds(OneIn(2) ? 300 : 5000);
    faults.is_watched = OneIn(2);
    return faults;
  }

  int size_ = 2;
  WireFaults faults_;
  std::chrono::seconds deadline_{1};
  std::unique_ptr<FakeRanks> ranks_;
};

TEST_P(RandomRanks, KeepTheContract) {
  Run();
  if (HasFailure()) return;
  const Status alive = ranks_->CheckAlive();
  const bool is_short_stall = faults_.kind == WireFaults::Kind::kStall && faults_.stall < deadline_;
  if (!ranks_->wire().has_struck() || is_short_stall) {
    EXPECT_TRUE(alive) << alive.error().message;
  } else if (!alive) {
    EXPECT_THAT(alive.error().message,
                ::testing::ContainsRegex(fmt::format(
                    "rank ({}|[{}-3])", faults_.kind == WireFaults::Kind::kCut ? 0 : faults_.rank,
                    faults_.rank)));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRanks, ::testing::Range(0u, 48u));

}  // namespace
}  // namespace sluice
