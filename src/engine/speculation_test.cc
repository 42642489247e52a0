// Answers with draft tokens equal those without. The fake model's answers reveal any error in the
// cache.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::CountingObserver;
using testing::FakeEngine;
using testing::FakeModel;
using testing::GreedyFor;

SpeculationConfig Ngram(int num_tokens) {
  SpeculationConfig config;
  config.method = SpeculationConfig::Method::kNgram;
  config.num_tokens = num_tokens;
  config.lookup_min = 2;
  config.lookup_max = 4;
  return config;
}

DraftConfig Draft(int num_tokens) {
  DraftConfig config;
  config.folder = "draft";
  config.num_tokens = num_tokens;
  config.adaptive = false;  // false, because measured times are not meaningful in tests
  return config;
}

constexpr size_t kPeriod = 5;

struct SpeculativeAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;
  bool operator==(const SpeculativeAnswer&) const = default;
};

// Returns the answers of `engine` to all `kinds`, submitted at once.
std::vector<SpeculativeAnswer> AnswersOf(FakeEngine& engine,
                                         const std::vector<SamplingParams>& kinds,
                                         size_t period_of_draft = kPeriod) {
  engine.model->period = kPeriod;
  if (engine.draft != nullptr) engine.draft->period = period_of_draft;
  // Steps wait until all requests have been submitted.
  engine.model->allowed_steps = engine.model->steps.load();
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const SamplingParams& params : kinds) {
    sinks.push_back(std::make_shared<CollectingSink>(2));
    const std::vector<int32_t> prompt = {9, 2, 3, 4, 5, 9, 2, 3, 4, 5, 9};
    EXPECT_TRUE(engine.Submit(prompt, params, sinks.back(), 2));
  }
  engine.model->allowed_steps = std::numeric_limits<int64_t>::max();
  std::vector<SpeculativeAnswer> answers;
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->WaitForEnd());
    EXPECT_FALSE(sink->error);
    for (const auto& sequence : sink->sequences) {
      SpeculativeAnswer& answer = answers.emplace_back();
      answer.tokens = sequence.tokens;
      answer.finish = sequence.finish;
      answer.stop_token = sequence.stop_token;
      for (const TokenLogprobs& entry : sequence.logprobs) answer.logprobs.push_back(entry.logprob);
    }
  }
  EXPECT_TRUE(engine.WaitForIdle());
  return answers;
}

// Different sampling parameters, one for each request. Each request has its own seed.
std::vector<SamplingParams> KindsOfSampling() {
  std::vector<SamplingParams> kinds(12, GreedyFor(60));
  for (size_t i = 1; i < kinds.size(); ++i) {
    kinds[i].temperature = 0.7;
    kinds[i].seed = static_cast<int64_t>(i);
  }
  kinds[2].top_p = 0.8;
  kinds[3].top_k = 7;
  kinds[4].min_p = 0.2;
  kinds[5].logprobs = 3;
  kinds[6].presence_penalty = 1.5;
  kinds[7].stop_token_ids = {4};
  kinds[7].min_tokens = 7;
  kinds[8].bad_words = {{9, 2}};
  kinds[9].logit_bias = {{FakeModel::kEos, 25.0f}};
  kinds[10].prompt_logprobs = 1;
  kinds[11].max_tokens = 3;
  return kinds;
}

TEST(Speculation, AnswersOfEveryKindAreTheSame) {
  FakeEngine plain({});
  const std::vector<SpeculativeAnswer> expected = AnswersOf(plain, KindsOfSampling());
  EXPECT_EQ(plain.observer.drafts, 0);
  for (const int num_tokens : {1, 3, 15}) {
    for (const bool draws : {false, true}) {
      FakeEngine engine({.speculation = Ngram(num_tokens)});
      engine.model->draws = draws;
      // Requests run one at a time, so that there is room for draft tokens.
      std::vector<SpeculativeAnswer> answers;
      for (const SamplingParams& kind : KindsOfSampling()) {
        for (SpeculativeAnswer& answer : AnswersOf(engine, {kind}))
          answers.push_back(std::move(answer));
      }
      EXPECT_EQ(answers, expected) << num_tokens << " " << draws;
      EXPECT_GT(engine.observer.accepted_tokens, 100);
      EXPECT_LT(engine.observer.accepted_tokens, engine.observer.draft_tokens) << "none was wrong";
      EXPECT_LT(engine.observer.steps, plain.observer.generated_tokens);
      EXPECT_EQ(engine.observer.generated_tokens, plain.observer.generated_tokens);
      EXPECT_EQ(engine.observer.prompt_tokens > 0, true);
    }
  }
}

TEST(Speculation, TakesFewerSteps) {
  FakeEngine plain({}), engine({.speculation = Ngram(4)});
  const auto expected = AnswersOf(plain, {GreedyFor(200)});
  EXPECT_EQ(AnswersOf(engine, {GreedyFor(200)}), expected);
  EXPECT_LT(2 * engine.observer.steps, plain.observer.steps);
  // The tokens that a step generates for a sequence arrive together.
  EXPECT_LT(2 * engine.observer.inter_tokens, plain.observer.inter_tokens);
}

TEST(Speculation, ManySequencesLeaveNoRoom) {
  FakeEngine engine({.speculation = Ngram(4)});
  FakeEngine plain({});
  const std::vector<SamplingParams> many(16, GreedyFor(20));  // each with two sequences
  EXPECT_EQ(AnswersOf(engine, many), AnswersOf(plain, many));
}

// A draft model with the target's weights draws the same tokens for all sampling parameters. An
// error in its cache, or in its copy of the sequence, would make some draft tokens wrong.
TEST(Speculation, ADraftModelOfTheSameWeightsIsAlwaysRight) {
  std::vector<SamplingParams> kinds = KindsOfSampling();
  kinds.erase(kinds.begin() + 9);  // the request ends before all draft tokens are verified
  kinds.erase(kinds.begin() + 7);
  for (const bool prefix_caching : {false, true}) {
    FakeEngine plain({.prefix_caching = prefix_caching});
    const std::vector<SpeculativeAnswer> expected = AnswersOf(plain, kinds);
    for (const int num_tokens : {1, 3, 15}) {
      for (const size_t at_once : {size_t{1}, size_t{3}}) {
        FakeEngine engine({.prefix_caching = prefix_caching, .draft = Draft(num_tokens)});
        std::vector<SpeculativeAnswer> answers;
        for (size_t i = 0; i < kinds.size(); i += at_once) {
          const auto end = std::min(kinds.size(), i + at_once);
          for (SpeculativeAnswer& answer :
               AnswersOf(engine, {kinds.begin() + static_cast<ptrdiff_t>(i),
                                  kinds.begin() + static_cast<ptrdiff_t>(end)}))
            answers.push_back(std::move(answer));
        }
        EXPECT_EQ(answers, expected) << num_tokens << " " << at_once;
        EXPECT_GT(engine.observer.draft_tokens, 300);
        EXPECT_EQ(engine.observer.accepted_tokens, engine.observer.draft_tokens);
        EXPECT_LT(engine.observer.steps, plain.observer.generated_tokens);
      }
    }
  }
}

TEST(Speculation, ADraftModelMayBeWrong) {
  FakeEngine plain({}), engine({.draft = Draft(4)});
  const std::vector<SpeculativeAnswer> expected = AnswersOf(plain, KindsOfSampling());
  std::vector<SpeculativeAnswer> answers;
  for (const SamplingParams& kind : KindsOfSampling()) {
    for (SpeculativeAnswer& answer : AnswersOf(engine, {kind}, /*period_of_draft=*/0))
      answers.push_back(std::move(answer));
  }
  EXPECT_EQ(answers, expected);
  EXPECT_GT(engine.observer.draft_tokens, 500);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
  EXPECT_LT(2 * engine.observer.accepted_tokens, engine.observer.draft_tokens);
}

// A prefix in the draft's cache is not computed again. A new prompt is computed in several steps.
TEST(Speculation, ADraftModelCatchesUp) {
  FakeEngine engine({.max_num_batched_tokens = 400, .draft = Draft(4)});
  std::vector<int32_t> prompt(203);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 50);
  const auto first = engine.Ask(prompt, GreedyFor(40));
  EXPECT_EQ(first->tokens(), FakeModel::Greedy(prompt, 40));
  EXPECT_EQ(engine.draft->largest_step, 48);
  EXPECT_GT(engine.observer.accepted_tokens, 20);
  EXPECT_EQ(engine.observer.accepted_tokens, engine.observer.draft_tokens);
  EXPECT_TRUE(engine.WaitForIdle());
  engine.draft->largest_step = 0;
  EXPECT_EQ(engine.Ask(prompt, GreedyFor(40))->tokens(), first->tokens());
  EXPECT_LT(engine.draft->largest_step, 8);
}

// Layers with different head sizes, with windows, and layers that read the keys of other layers.
// The draft's cache has the same layout as any other cache of this model.
TEST(Speculation, ADraftModelMayHaveLayersThatDiffer) {
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/tiny-gemma4-shared");
  config.num_threads = 2;
  config.max_model_len = 192;
  config.max_num_seqs = 4;
  config.kv_cache_bytes = int64_t{8} << 20;
  std::vector<int32_t> expected;
  for (const bool has_draft : {false, true}) {
    if (has_draft) {
      config.draft.folder = config.model_folder;
      config.draft.num_tokens = 4;
      config.draft.adaptive = false;
    }
    CountingObserver observer;
    Engine::Hooks hooks;
    hooks.observer = &observer;
    const auto engine = Engine::Create(config, hooks);
    ASSERT_TRUE(engine) << engine.error().message;
    Request request;
    for (int i = 0; i < 90; ++i) request.prompt.push_back((i * i * 17 + 3) % 128);
    request.sampling = GreedyFor(60);
    const auto sink = std::make_shared<CollectingSink>();
    request.sink = sink;
    const auto submitted = (*engine)->Submit(std::move(request));
    ASSERT_TRUE(submitted) << submitted.error().message;
    ASSERT_TRUE(sink->WaitForEnd());
    if (!has_draft) {
      expected = sink->tokens();
    } else {
      EXPECT_EQ(sink->tokens(), expected);
      EXPECT_GT(observer.draft_tokens, 30);
      EXPECT_EQ(observer.accepted_tokens, observer.draft_tokens);
    }
  }
}

TEST(Speculation, ADraftModelWithoutRoomProposesLess) {
  FakeEngine plain({}), few({.draft = Draft(4), .draft_blocks = 4});
  EXPECT_EQ(AnswersOf(few, KindsOfSampling()), AnswersOf(plain, KindsOfSampling()));
  FakeEngine none({.draft = Draft(4), .draft_blocks = 1});
  EXPECT_EQ(AnswersOf(none, {GreedyFor(30)}), AnswersOf(plain, {GreedyFor(30)}));
  EXPECT_EQ(none.observer.drafts, 0);
}

TEST(Speculation, ADraftModelThatFailsIsNotAskedAgain) {
  FakeEngine plain({}), engine({.draft = Draft(4)});
  engine.draft->lost = true;  // every step throws
  EXPECT_EQ(AnswersOf(engine, {GreedyFor(30)}), AnswersOf(plain, {GreedyFor(30)}));
  EXPECT_EQ(engine.observer.drafts, 0);
  EXPECT_EQ(engine.draft->steps, 1);
}

// The draft model proposes only for the sequences of the step that is being planned, not for those
// in flight.
TEST(Speculation, ADraftModelProposesWhileStepsAreInFlight) {
  FakeEngine plain({.prefix_caching = false});
  FakeEngine engine({.prefix_caching = false, .num_stages = 3, .draft = Draft(3)});
  const std::vector<SamplingParams> kinds(3, GreedyFor(60));
  EXPECT_EQ(AnswersOf(engine, kinds), AnswersOf(plain, kinds));
  EXPECT_EQ(engine.observer.most_in_flight, 3);
  EXPECT_GT(engine.observer.draft_tokens, 100);
  EXPECT_EQ(engine.observer.accepted_tokens, engine.observer.draft_tokens);
  EXPECT_LE(engine.draft->largest_step, 2 * 16);
}

TEST(Speculation, ADraftModelMayBeWrongWhileStepsAreInFlight) {
  FakeEngine plain({}), engine({.num_stages = 3, .draft = Draft(4)});
  const std::vector<SamplingParams> kinds = KindsOfSampling();
  for (size_t i = 0; i < kinds.size(); i += 3) {  // few enough to leave room for draft tokens
    const std::vector<SamplingParams> some(kinds.begin() + static_cast<ptrdiff_t>(i),
                                           kinds.begin() + static_cast<ptrdiff_t>(i) + 3);
    EXPECT_EQ(AnswersOf(engine, some, /*period_of_draft=*/0), AnswersOf(plain, some)) << i;
  }
  EXPECT_EQ(engine.observer.most_in_flight, 3);
  EXPECT_GT(engine.observer.draft_tokens, 300);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
  EXPECT_LT(2 * engine.observer.accepted_tokens, engine.observer.draft_tokens);
}

TEST(Speculation, ADraftModelSurvivesPreemptions) {
  const FakeEngine::Options few = {.num_blocks = 26, .max_model_len = 96};
  FakeEngine::Options speculating = few;
  speculating.draft = Draft(4);
  FakeEngine plain(few), engine(speculating);
  const std::vector<SamplingParams> kinds(3, GreedyFor(80));
  EXPECT_EQ(AnswersOf(engine, kinds), AnswersOf(plain, kinds));
  EXPECT_GT(engine.observer.preemptions, 0);
  EXPECT_EQ(engine.observer.accepted_tokens, engine.observer.draft_tokens);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
}

// Draft tokens take no blocks that waiting sequences need.
TEST(Speculation, PreemptsNobody) {
  const FakeEngine::Options few = {.num_blocks = 48, .max_model_len = 96};
  FakeEngine::Options speculating = few;
  speculating.speculation = Ngram(8);
  FakeEngine plain(few), engine(speculating);
  const std::vector<SamplingParams> kinds(2, GreedyFor(30));
  EXPECT_EQ(AnswersOf(engine, kinds), AnswersOf(plain, kinds));
  EXPECT_EQ(engine.observer.preemptions, 0);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
}

// The next request finds accepted tokens in the prefix cache as if they had been decoded.
TEST(Speculation, FillsThePrefixCache) {
  const auto hits = [](FakeEngine& engine) {
    engine.model->period = kPeriod;
    std::vector<int32_t> tokens = {9, 2, 3, 4, 5, 9, 2, 3, 4, 5, 9};
    const auto first = engine.Ask(tokens, GreedyFor(53));
    tokens.insert(tokens.end(), first->tokens().begin(), first->tokens().end());
    const auto second = engine.Ask(tokens, GreedyFor(4));
    return std::pair(second->prompt->cached_tokens, second->tokens());
  };
  FakeEngine plain({}), engine({.speculation = Ngram(8)});
  const auto expected = hits(plain);
  EXPECT_GE(expected.first, 56);
  EXPECT_EQ(hits(engine), expected);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
}

TEST(Speculation, PastAnswersArePrivateWithASalt) {
  SpeculationConfig config = Ngram(8);
  config.method = SpeculationConfig::Method::kSuffix;
  config.cached_tokens = 1000;
  const auto drafts_of_second = [&](const std::string& salt) {
    FakeEngine engine({.speculation = config});
    int64_t before = 0;
    for (int i = 0; i < 2; ++i) {
      before = engine.observer.drafts;
      Request request;
      request.id = "test";
      request.prompt = {1, 2, 3, 4};
      request.sampling = GreedyFor(40);
      request.cache_salt = salt;
      const auto sink = std::make_shared<CollectingSink>();
      request.sink = sink;
      EXPECT_TRUE(engine.engine->Submit(std::move(request)));
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_EQ(sink->tokens(), FakeModel::Greedy({1, 2, 3, 4}, 40));
      EXPECT_TRUE(engine.WaitForIdle());
    }
    return engine.observer.drafts - before;
  };
  // This model never repeats itself within an answer, so draft tokens come from earlier answers
  // with the same salt.
  EXPECT_GT(drafts_of_second(""), 0);
  EXPECT_EQ(drafts_of_second("mine"), 0);
}

}  // namespace
}  // namespace sluice
