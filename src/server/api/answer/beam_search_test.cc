#include "server/api/answer/beam_search.h"

#include <atomic>
#include <latch>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

BeamRequest Width(int n) {
  BeamRequest request;
  request.common.n = n;
  request.end_tokens = {9};
  return request;
}

TEST(StepBeams, CandidatesOfAllBeamsCompete) {
  std::vector<Beam> beams(2);
  beams[0].tokens = {1};
  beams[0].logprob_sum = -0.1;
  beams[1].tokens = {2};
  beams[1].logprob_sum = -1.0;
  const std::vector<TokenLogprobs> next = {{3, -0.2f, 1, {{3, -0.2f}, {4, -3.0f}}},
                                           {5, -0.3f, 1, {{5, -0.3f}, {6, -0.4f}}}};
  std::vector<Beam> completed;
  StepBeams(beams, next, Width(2), completed);
  ASSERT_EQ(beams.size(), 2u);
  EXPECT_THAT(beams[0].tokens, ElementsAre(1, 3));
  EXPECT_THAT(beams[1].tokens, ElementsAre(2, 5));
  EXPECT_TRUE(completed.empty());
  EXPECT_TRUE(beams[0].logprobs.empty()) << "nobody asked for them";
}

TEST(StepBeams, AnEndTokenCompletesABeamAndIsNotShown) {
  std::vector<Beam> beams(1);
  beams[0].tokens = {1};
  const std::vector<TokenLogprobs> next = {{9, -0.1f, 1, {{9, -0.1f}, {4, -2.0f}}}};
  std::vector<Beam> completed;
  BeamRequest request = Width(1);
  request.logprobs = true;
  StepBeams(beams, next, request, completed);
  ASSERT_EQ(completed.size(), 1u);
  EXPECT_THAT(completed[0].tokens, ElementsAre(1));
  EXPECT_TRUE(completed[0].ended);
  EXPECT_EQ(completed[0].end_token, 9);
  EXPECT_EQ(completed[0].logprobs.size(), 1u);
  EXPECT_THAT(beams[0].tokens, ElementsAre(1, 4));
  EXPECT_EQ(beams[0].logprobs[0].rank, 2);
  const std::vector<Beam> best = BestBeams(completed, beams, request);
  ASSERT_EQ(best.size(), 1u);
  EXPECT_TRUE(best[0].ended);
}

TEST(StepBeams, EndTokensAreOrdinaryOnesWhenIgnored) {
  std::vector<Beam> beams(1);
  beams[0].tokens = {1};
  BeamRequest request = Width(1);
  request.ignore_eos = true;
  std::vector<Beam> completed;
  StepBeams(beams, std::vector<TokenLogprobs>{{9, -0.1f, 1, {{9, -0.1f}}}}, request, completed);
  EXPECT_TRUE(completed.empty());
  EXPECT_THAT(beams[0].tokens, ElementsAre(1, 9));
}

TEST(BestBeams, LengthPenaltyWeighsTheLength) {
  Beam lengthy, brief;
  lengthy.tokens = {1, 2, 3, 4};
  lengthy.logprob_sum = -2.0;
  brief.tokens = {1, 2};
  brief.logprob_sum = -1.5;
  BeamRequest request = Width(1);
  EXPECT_EQ(BestBeams({lengthy}, {brief}, request)[0].tokens.size(), 4u);
  request.length_penalty = 0;
  EXPECT_EQ(BestBeams({lengthy}, {brief}, request)[0].tokens.size(), 2u);
}

// Accepts requests, never sends updates, and lets the test act within Submit().
class DumbEngine : public FakeEngine {
 public:
  Result<RequestHandle> Submit(Request) override {
    submitted.push_back(submitted.size() + 1);
    if (on_submit) on_submit();
    return submitted.back();
  }
  void Abort(RequestHandle handle) override { aborted.push_back(handle); }

  std::vector<RequestHandle> submitted, aborted;
  std::function<void()> on_submit;
};

class LeavingClient : public ResponseWriter {
 public:
  void Send(HttpResponse) override {}
  void StartStream(HttpResponse) override {}
  void WriteChunk(std::string_view) override {}
  void EndStream() override {}
  bool backlogged() const override { return false; }
  bool closed() const override { return false; }
  void SetCallbacks(std::function<void()> on_closed, std::function<void()>) override {
    on_closed_ = std::move(on_closed);
  }
  void Leave() { std::exchange(on_closed_, nullptr)(); }

 private:
  std::function<void()> on_closed_;
};

class DeafAnswer : public AnswerWriter {
 public:
  void Write(AnswerStep) override {}
};

TEST(BeamSearchTest, AClientThatLeavesWhileAStepIsSubmittedLeavesNothingBehind) {
  DumbEngine engine;
  ServerConfig config;
  config.served_model_names = {"abacus"};
  const auto model = TestModelContext(config, &engine);
  const auto client = std::make_shared<LeavingClient>();
  const auto active = std::make_shared<ActiveRequests>();
  BeamRequest request = Width(2);
  request.common.id = "cmpl-1";
  request.common.prompts.resize(4);
  for (Prompt& prompt : request.common.prompts) prompt.tokens = {5};
  request.common.sampling.resize(4);
  for (SamplingParams& sampling : request.common.sampling) sampling.max_tokens = 3;
  engine.on_submit = [&] {
    if (engine.submitted.size() == 2) client->Leave();
  };
  WorkerPool pool(1);
  std::latch done(1);
  pool.Submit([&] {
    BeamSearch::Start(model, &pool, active, client, request, std::make_unique<DeafAnswer>());
    done.count_down();
  });
  done.wait();
  EXPECT_THAT(engine.submitted, ElementsAre(1, 2)) << "nothing after the client has left";
  EXPECT_THAT(engine.aborted, ::testing::UnorderedElementsAre(1, 2));
  bool idle = false;
  active->Pause([&] { idle = true; });
  EXPECT_TRUE(idle);
}

}  // namespace
}  // namespace sluice
