#include "server/api/answer/generation.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sends no updates itself: the test passes the sequences' new tokens to the sink.
class SilentEngine : public FakeEngine {
 public:
  Result<RequestHandle> Submit(Request request) override {
    std::lock_guard lock(mutex_);
    sinks_.push_back(request.sink);
    constraint_ = request.constraint;
    return static_cast<RequestHandle>(sinks_.size());
  }
  void Abort(RequestHandle) override { ++num_aborted; }
  std::vector<std::shared_ptr<RequestSink>> sinks() const {
    std::lock_guard lock(mutex_);
    return sinks_;
  }
  std::shared_ptr<const Constraint> last_constraint() const {
    std::lock_guard lock(mutex_);
    return constraint_;
  }
  std::atomic<int> num_aborted{0};

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<RequestSink>> sinks_;
  std::shared_ptr<const Constraint> constraint_;
};

// A client that reads only when the test allows it.
class SlowClient : public ResponseWriter {
 public:
  void Send(HttpResponse) override {}
  void StartStream(HttpResponse) override {}
  void WriteChunk(std::string_view) override {}
  void EndStream() override {}
  bool backlogged() const override {
    if (on_asked) on_asked();
    const bool answer = behind;
    if (on_answered) on_answered();
    return answer;
  }
  bool closed() const override { return false; }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()> on_writable) override {
    on_closed_ = std::move(on_closed);
    on_writable_ = std::move(on_writable);
  }
  void CatchUp() {
    behind = false;
    on_writable_();
  }
  void Leave() {
    behind = false;
    on_closed_();
  }

  std::atomic<bool> behind{false};
  // Called when the code under test asks whether the client is behind: on_asked before the result
  // is determined, on_answered after it.
  std::function<void()> on_asked, on_answered;

 private:
  std::function<void()> on_closed_, on_writable_;
};

// The events that the client received. Read it after `over` is set, or while nothing is in
// progress.
struct Heard {
  std::vector<std::vector<int32_t>> deltas;  // tokens of each update
  std::vector<int32_t> tokens;
  size_t most_tokens = 1'000'000;     // an answer with more tokens is too large
  int32_t token_without_memory = -1;  // an allocation fails while this token is written
  std::string failure;
  std::string text, reasoning, calls;  // calls: names and arguments
  std::string finish;
  UsageEvent usage;
  std::atomic<bool> over{false};
};

class Listener : public AnswerWriter {
 public:
  explicit Listener(Heard* heard) : heard_(heard) {}
  void Write(AnswerStep step) override {
    for (AnswerEvent& event : step) {
      if (auto* tokens = std::get_if<TokensEvent>(&event)) {
        if (std::ranges::count(tokens->ids, heard_->token_without_memory) > 0)
          throw std::bad_alloc();
        heard_->tokens.insert(heard_->tokens.end(), tokens->ids.begin(), tokens->ids.end());
        heard_->deltas.push_back(std::move(tokens->ids));
      } else if (const auto* text = std::get_if<TextEvent>(&event)) {
        heard_->text += text->text;
      } else if (const auto* thought = std::get_if<ReasoningEvent>(&event)) {
        heard_->reasoning += thought->text;
      } else if (const auto* call = std::get_if<ToolCallEvent>(&event)) {
        EXPECT_EQ(call->id.empty(), call->name.empty());
        heard_->calls += call->name + call->arguments;
      } else if (const auto* finish = std::get_if<FinishEvent>(&event)) {
        heard_->finish = FinishReasonName(*finish);
      } else if (const auto* usage = std::get_if<UsageEvent>(&event)) {
        heard_->usage = *usage;
        heard_->over = true;
      } else if (const auto* error = std::get_if<ErrorEvent>(&event)) {
        heard_->failure = error->error.message;
        heard_->over = true;
      }
    }
  }
  std::optional<ApiError> Refusal() const override {
    if (heard_->tokens.size() <= heard_->most_tokens) return std::nullopt;
    return AnswerTooLarge(heard_->most_tokens);
  }

 private:
  Heard* const heard_;
};

// One stream of one sequence, on a pool of one thread, so that the test knows which tasks are done.
class GenerationTest : public ::testing::Test {
 protected:
  GenerationTest() {
    ServerConfig config;
    config.served_model_names = {"abacus"};
    model_ = TestModelContext(config, &engine_);
    Launch(/*num_prompts=*/1, &heard_);
  }
  ~GenerationTest() override {
    pool_.Stop();
    client_->SetCallbacks(nullptr, nullptr);
  }

  void Launch(size_t num_prompts, Heard* heard, std::optional<AnswerParsing> parsing = {},
              std::shared_ptr<const Constraint> constraint = nullptr) {
    GenerationRequest request;
    request.parsing = std::move(parsing);
    request.constraint = std::move(constraint);
    request.id = "cmpl-1";
    request.prompts.resize(num_prompts);
    for (Prompt& prompt : request.prompts) prompt.tokens = {5};
    request.sampling.resize(num_prompts);
    request.stream = true;
    pool_.Submit([this, request, heard] {
      Generation::Start(model_, &pool_, active_, client_, request,
                        std::make_unique<Listener>(heard));
    });
    Settle();
  }
  // Drains the pool, including tasks submitted by running tasks.
  void Settle() {
    for (int i = 0; i < 3; ++i) {
      std::latch done(1);
      pool_.Submit([&] { done.count_down(); });
      done.wait();
    }
  }
  void Tell(std::vector<int32_t> tokens, bool is_last = false) {
    SequenceUpdate update;
    update.tokens = std::move(tokens);
    if (is_last) update.finish = FinishReason::kLength;
    engine_.sinks().at(0)->OnUpdate(std::move(update));
  }
  bool IsForgotten() {
    bool idle = false;
    active_->Pause([&] { idle = true; });
    return idle;
  }

  SilentEngine engine_;
  std::shared_ptr<const ModelContext> model_;
  std::shared_ptr<SlowClient> client_ = std::make_shared<SlowClient>();
  std::shared_ptr<ActiveRequests> active_ = std::make_shared<ActiveRequests>();
  Heard heard_;
  WorkerPool pool_{1};
};

TEST_F(GenerationTest, TellsReasoningAndCallsFromTheText) {
  const std::vector<int32_t> tokens = model_->tokenizer->Encode(
      "<think>Hm, so.</think>Look: <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
      "1}}</tool_call>"
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
      /*add_special_tokens=*/false);
  for (const bool first_call_only : {false, true}) {
    Heard heard;
    AnswerParsing parsing{.tools = FindToolParser("hermes"),
                          .reasoning = FindReasoningParser("qwen3"),
                          .types = nullptr,
                          .thinking = {}};
    parsing.first_call_only = first_call_only;
    parsing.include_reasoning = !first_call_only;
    Launch(/*num_prompts=*/1, &heard, parsing);
    SequenceUpdate update;
    update.tokens = tokens;
    update.tokens.push_back(2);
    update.finish = FinishReason::kStop;
    engine_.sinks().back()->OnUpdate(std::move(update));
    Settle();
    ASSERT_TRUE(heard.over);
    EXPECT_EQ(heard.text, "Look: ");
    EXPECT_EQ(heard.reasoning, first_call_only ? "" : "Hm, so.");
    EXPECT_EQ(heard.calls, first_call_only ? R"(f{"a": 1})" : R"(f{"a": 1}g{})");
    EXPECT_EQ(heard.finish, "tool_calls");
    ASSERT_TRUE(heard.usage.reasoning_tokens);
    EXPECT_GT(*heard.usage.reasoning_tokens, 0);
    EXPECT_LT(*heard.usage.reasoning_tokens, static_cast<int64_t>(tokens.size()) / 2);
  }
}

// Counts the requests by finish reason.
class ReasonCounter : public EngineObserver {
 public:
  void OnStep(const StepStats&) override {}
  void OnFirstToken(double) override {}
  void OnInterToken(double) override {}
  void OnFinished(const RequestStats& stats) override {
    for (const SequenceStats& sequence : stats.sequences) ++counts[sequence.reason];
  }
  std::map<FinishReason, int> counts;
};

// A stop string may end in the engine's last token. The client and the metrics must then get the
// finish reason `stop`.
TEST_F(GenerationTest, IsCountedWithTheReasonThatItsClientSees) {
  const std::vector<int32_t> tokens =
      model_->tokenizer->Encode("one two", /*add_special_tokens=*/false);
  const auto run = [&](std::vector<std::string> stop, bool leaves) {
    ReasonCounter counter;
    Heard heard;
    GenerationRequest request;
    request.id = "cmpl-2";
    request.prompts.resize(1);
    request.prompts[0].tokens = {5};
    request.sampling.resize(1);
    request.stop = std::move(stop);
    pool_.Submit([&] {
      Generation::Start(model_, &pool_, active_, client_, request,
                        std::make_unique<Listener>(&heard));
    });
    Settle();
    const std::shared_ptr<RequestSink> sink = engine_.sinks().back();
    RequestStats stats;
    stats.reason = FinishReason::kLength;
    stats.sequences = {{FinishReason::kLength, std::ssize(tokens), 0}};
    if (!sink->OnStats(stats, &counter)) counter.OnFinished(stats);
    if (leaves) {
      client_->Leave();
    } else {
      SequenceUpdate update;
      update.tokens = tokens;
      update.finish = FinishReason::kLength;
      sink->OnUpdate(std::move(update));
    }
    Settle();
    EXPECT_EQ(counter.counts.size(), 1U);
    const auto [reason, count] = *counter.counts.begin();
    EXPECT_EQ(count, 1);
    if (!leaves) {
      EXPECT_EQ(heard.finish, reason == FinishReason::kStop ? "stop" : "length");
    }
    return reason;
  };
  EXPECT_EQ(run({}, false), FinishReason::kLength);
  EXPECT_EQ(run({"three"}, false), FinishReason::kLength);
  EXPECT_EQ(run({"two"}, false), FinishReason::kStop);
  EXPECT_EQ(run({"two"}, true), FinishReason::kLength) << "counted once, though the client left";
}

TEST_F(GenerationTest, LetsConstraintsBeginBehindThoughts) {
  class Anything final : public Constraint {
   public:
    std::unique_ptr<TokenMatcher> NewMatcher() const override { return nullptr; }
    size_t bytes() const override { return 0; }
  };
  const auto constraint = std::make_shared<const Anything>();
  const auto submitted = [&](const char* reasoning, std::optional<bool> thinking,
                             bool constrains_channels = false, bool holds_thoughts = false) {
    Heard heard;
    AnswerParsing parsing;
    parsing.reasoning = reasoning == nullptr ? nullptr : FindReasoningParser(reasoning);
    parsing.thinking = thinking;
    parsing.constrains_channels = constrains_channels;
    parsing.held = true;
    parsing.holds_thoughts = holds_thoughts;
    Launch(/*num_prompts=*/1, &heard, parsing, constraint);
    SequenceUpdate update;
    update.tokens = {2};
    update.finish = FinishReason::kStop;
    engine_.sinks().back()->OnUpdate(std::move(update));
    Settle();
    return engine_.last_constraint();
  };
  EXPECT_EQ(submitted(nullptr, {}), constraint);
  EXPECT_NE(submitted("qwen3", {}), constraint);
  EXPECT_EQ(submitted("qwen3", false), constraint) << "there is no thought";
  EXPECT_EQ(submitted("qwen3", {}, true), constraint) << "thoughts are of the constraint";
  EXPECT_EQ(submitted("qwen3", {}, false, true), constraint) << "it holds for all of the answer";
}

TEST_F(GenerationTest, GivesEachStepToAClientThatKeepsUp) {
  for (int32_t token = 1; token <= 3; ++token) {
    Tell({token}, token == 3);
    Settle();
  }
  EXPECT_THAT(heard_.deltas, ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_TRUE(heard_.over);
}

TEST_F(GenerationTest, FailsAloneWhereMemoryRunsOut) {
  heard_.token_without_memory = 2;
  Tell({1});
  Settle();
  Tell({2});
  Settle();
  EXPECT_TRUE(heard_.over);
  EXPECT_THAT(heard_.failure, HasSubstr("out of memory"));
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, JoinsStepsForAClientThatIsBehind) {
  Tell({1});
  Settle();
  client_->behind = true;
  for (int32_t token = 2; token <= 9; ++token) {
    Tell({token}, token == 9);
    Settle();
  }
  EXPECT_THAT(heard_.deltas, ElementsAre(ElementsAre(1)));
  EXPECT_FALSE(heard_.over);
  client_->CatchUp();
  Settle();
  EXPECT_THAT(heard_.deltas, ElementsAre(ElementsAre(1), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9)));
  EXPECT_TRUE(heard_.over);
}

TEST_F(GenerationTest, KeepsTheOrderOfWhatComesBetweenCatchingUpAndTheNextWork) {
  client_->behind = true;
  Tell({1});
  Settle();
  Tell({2});
  std::latch busy(1);
  pool_.Submit([&] { busy.wait(); });
  client_->CatchUp();
  Tell({3}, /*is_last=*/true);
  busy.count_down();
  Settle();
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2, 3));
  EXPECT_TRUE(heard_.over);
}

TEST_F(GenerationTest, KeepsTheOrderOfWhatComesWhileItDecidesToHoldBack) {
  client_->behind = true;
  // The generation checks whether the client is behind both before and after it sets `holding_`.
  int32_t next = 2;
  client_->on_asked = [&] {
    if (next <= 3) Tell({next++});
  };
  Tell({1});
  Settle();
  EXPECT_EQ(next, 4);
  Tell({4}, /*is_last=*/true);
  client_->CatchUp();
  Settle();
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(heard_.over);
}

TEST_F(GenerationTest, GoesOnWhereTheClientCatchesUpWhileItDecidesToHoldBack) {
  client_->behind = true;
  int32_t next = 2;
  client_->on_asked = [&] {
    if (next > 3) return;
    Tell({next++});
    if (next == 4) client_->CatchUp();
  };
  Tell({1});
  Settle();
  Tell({4}, /*is_last=*/true);
  Settle();
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(heard_.over);
}

TEST_F(GenerationTest, GoesOnWhereTheClientCatchesUpBeforeItHoldsBack) {
  client_->behind = true;
  int answers = 0;
  client_->on_answered = [&] {
    if (++answers == 2) client_->CatchUp();
  };
  Tell({1});
  Settle();
  Tell({2}, /*is_last=*/true);
  Settle();
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2));
  EXPECT_TRUE(heard_.over);
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, IsForgottenWhereTheClientLeavesBeforeItHoldsBack) {
  client_->behind = true;
  int answers = 0;
  client_->on_answered = [&] {
    if (++answers == 2) client_->Leave();
  };
  Tell({1});
  Settle();
  EXPECT_GE(answers, 2);
  EXPECT_EQ(engine_.num_aborted, 1);
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, IsForgottenWhereTheClientLeavesWhileItIsBehind) {
  client_->behind = true;
  Tell({1});
  Settle();
  client_->Leave();
  Settle();
  EXPECT_EQ(engine_.num_aborted, 1);
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, TheOperatorEndsItThoughTheClientIsBehind) {
  client_->behind = true;
  Tell({1});
  Settle();
  Tell({2});
  EXPECT_EQ(active_->Abort({}), 1);
  Settle();
  EXPECT_EQ(engine_.num_aborted, 1);
  EXPECT_TRUE(heard_.over);
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2));
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, TheOperatorEndsItWhileItDecidesToHoldBack) {
  client_->behind = true;
  int answers = 0;
  client_->on_answered = [&] {
    if (++answers == 2) active_->Abort({});
  };
  Tell({1});
  Settle();
  EXPECT_EQ(engine_.num_aborted, 1);
  EXPECT_TRUE(heard_.over);
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, FailsWhereItsAnswerGrowsTooLarge) {
  heard_.most_tokens = 3;
  Tell({1, 2});
  Tell({3, 4});
  Tell({5}, /*is_last=*/true);
  Settle();
  EXPECT_EQ(engine_.num_aborted, 1);
  EXPECT_THAT(heard_.failure, ::testing::HasSubstr("The answer exceeds"));
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(IsForgotten());
}

TEST_F(GenerationTest, GivesWhatWasSaidBeforeAnErrorToAClientThatIsBehind) {
  client_->behind = true;
  Tell({1});
  Settle();
  Tell({2});
  engine_.sinks().at(0)->OnError({ErrorCode::kInternal, "the device is lost", {}});
  client_->CatchUp();
  Settle();
  EXPECT_THAT(heard_.tokens, ElementsAre(1, 2));
  EXPECT_EQ(heard_.failure, "the device is lost");
}

// The engine may answer the prompts of one request in any order; usage reports the last prompt.
TEST_F(GenerationTest, CachedTokensDoNotDependOnTheOrderOfPrompts) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1}, std::vector<size_t>{1, 0}}) {
    Heard heard;
    const size_t before = engine_.sinks().size();
    Launch(/*num_prompts=*/2, &heard);
    for (const size_t prompt : order) {
      const std::shared_ptr<RequestSink> sink = engine_.sinks().at(before + prompt);
      PromptResult result;
      result.cached_tokens = static_cast<int64_t>(100 + prompt);
      sink->OnPrompt(std::move(result));
      SequenceUpdate update;
      update.finish = FinishReason::kLength;
      sink->OnUpdate(std::move(update));
    }
    Settle();
    EXPECT_TRUE(heard.over);
    EXPECT_EQ(heard.usage.cached_tokens, 101);
  }
}

}  // namespace
}  // namespace sluice
