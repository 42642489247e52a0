// The CPU promise: a greedy or seeded answer, with bit-identical logprobs, does not depend on
// concurrent requests, the chunks of the prompt, the prefix cache and its tiers, the number of
// threads, ranks and engines, preemptions, or draft tokens.
#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "engine/device_choice_testing.h"
#include "engine/engine_testing.h"
#include "models/drafts_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::CountingObserver;
using testing::StripeConstraint;

struct PromiseAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::pair<int32_t, float>> top;
  bool operator==(const PromiseAnswer&) const = default;
};

struct PromiseQuestion {
  std::vector<int32_t> prompt;
  SamplingParams params;
  std::shared_ptr<const Constraint> constraint;
};

std::vector<PromiseQuestion> PromiseQuestions(int64_t vocab_size) {
  std::vector<PromiseQuestion> all;
  std::mt19937 random(11);
  for (int i = 0; i < 32; ++i) {
    PromiseQuestion question;
    // Every fourth prompt begins like the first one, so that they share a prefix.
    if (i % 4 == 3) question.prompt.assign(all[0].prompt.begin(), all[0].prompt.begin() + 48);
    const size_t length = i == 0 ? 130 : 1 + random() % 90;
    while (question.prompt.size() < length || question.prompt.empty()) {
      question.prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
    }
    question.params.temperature = i % 2 == 0 ? 0 : 0.8;
    question.params.seed = 100 + i;
    question.params.top_p = i % 3 == 0 ? 0.9 : 1;
    question.params.max_tokens = 40;
    question.params.ignore_eos = true;
    question.params.logprobs = 3;
    if (i % 5 == 2) question.constraint = std::make_shared<const StripeConstraint>();
    all.push_back(std::move(question));
  }
  return all;
}

struct Subject {
  const char* folder;
  int64_t few_blocks;     // in all layers: enough for one sequence and a little more
  int most_stages = 2;    // 1: the model is computed by a single rank
  const char* head = "";  // folder of an EAGLE-3 head; "": the checkpoint's own layers
};

DraftConfig DraftOf(const Subject& subject, int num_tokens) {
  const std::string head = subject.head;
  DraftConfig draft;
  draft.kind = head.empty()              ? DraftConfig::Kind::kMtp
               : testing::IsDflash(head) ? DraftConfig::Kind::kDflash
                                         : DraftConfig::Kind::kEagle3;
  if (!head.empty()) draft.folder = SourcePath("tests/data/checkpoints/" + head);
  draft.num_tokens = num_tokens;
  return draft;
}

// Blocks the engine's thread until Open() is called, so that requests submitted meanwhile run
// together.
class GateSink final : public RequestSink {
 public:
  void OnPrompt(PromptResult) override {}
  void OnUpdate(SequenceUpdate) override { opened_.wait(false); }
  void OnError(Error error) override { ADD_FAILURE() << error.message; }
  void Open() {
    opened_ = true;
    opened_.notify_all();
  }

 private:
  std::atomic<bool> opened_{false};
};

class Promise : public ::testing::TestWithParam<Subject> {
 protected:
  struct Run {
    int num_threads = 1;
    int64_t max_num_batched_tokens = 2048;
    int64_t max_num_seqs = 32;
    bool prefix_caching = false;
    std::optional<int64_t> num_blocks = {};
    bool at_once = true;
    int rounds = 1;  // number of rounds; the last round's answers are returned
    bool proposes = false;
    int drafts = 0;  // number of tokens that Subject::head proposes
    bool adaptive = false;
    double mask_seconds = 0;  // time that every third constraint mask takes
    int tensor_ranks = 1;
    int stages = 1;
    int engines = 1;
    int64_t ram_tier = 0;  // size in bytes
    bool disk_tier = false;
  };

  static std::string Folder() { return SourcePath("tests/data/checkpoints/") + GetParam().folder; }

  static std::vector<PromiseAnswer> Answers(const Run& run, CountingObserver* observer = nullptr) {
    EngineConfig config;
    config.model_folder = Folder();
    config.num_threads = run.num_threads;
    config.tensor_parallel_size = run.tensor_ranks;
    config.pipeline_parallel_size = run.stages;
    config.exact_ranks = true;
    config.data_parallel_size = run.engines;
    config.max_num_batched_tokens = run.max_num_batched_tokens;
    config.max_num_seqs = run.max_num_seqs;
    config.max_model_len = 192;
    config.enable_prefix_caching = run.prefix_caching;
    config.num_blocks_override = run.num_blocks;
    config.kv_cache_bytes = int64_t{64} << 20;
    config.offload.ram_bytes = run.ram_tier;
    const testing::TemporaryFolder disk;
    if (run.disk_tier) config.offload.folder = disk.path();
    if (run.proposes) {
      // The second round can propose tokens from the answers of the first.
      config.speculation.method = SpeculationConfig::Method::kSuffix;
      config.speculation.num_tokens = 5;
      config.speculation.lookup_min = 1;
      config.speculation.lookup_max = 8;
      config.speculation.max_spec_factor = 4;
      config.speculation.cached_tokens = 10000;
    }
    if (run.drafts > 0) {
      config.draft = DraftOf(GetParam(), run.drafts);
      config.draft.adaptive = run.adaptive;
    }
    Engine::Hooks hooks;
    hooks.observer = observer;
    auto engine = Engine::Create(config, hooks);
    EXPECT_TRUE(engine) << engine.error().message;
    std::vector<PromiseAnswer> answers;
    for (int round = 0; round < run.rounds; ++round) {
      answers.clear();
      std::vector<std::shared_ptr<CollectingSink>> sinks;
      const auto gate = std::make_shared<GateSink>();
      if (run.at_once) {
        Request first;
        first.prompt = {1};
        first.sampling = testing::GreedyFor(1);
        first.sink = gate;
        EXPECT_TRUE((*engine)->Submit(std::move(first)));
      }
      for (const PromiseQuestion& question : PromiseQuestions((*engine)->info().model.vocab_size)) {
        Request request;
        request.prompt = question.prompt;
        request.sampling = question.params;
        request.constraint = question.constraint;
        if (request.constraint != nullptr && run.mask_seconds > 0)
          request.constraint = std::make_shared<const StripeConstraint>(run.mask_seconds, 3);
        request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
        const auto handle = (*engine)->Submit(std::move(request));
        EXPECT_TRUE(handle) << handle.error().message;
        if (!run.at_once) {
          EXPECT_TRUE(sinks.back()->WaitForEnd());
        }
      }
      gate->Open();
      for (const auto& sink : sinks) {
        EXPECT_TRUE(sink->WaitForEnd());
        PromiseAnswer& answer = answers.emplace_back();
        answer.tokens = sink->tokens();
        for (const TokenLogprobs& entry : sink->sequences[0].logprobs) {
          answer.logprobs.push_back(entry.logprob);
          answer.top.insert(answer.top.end(), entry.top.begin(), entry.top.end());
        }
      }
    }
    return answers;
  }

  // Checks that several ranks and stages give the same answers.
  static void CheckRanks(const std::vector<PromiseAnswer>& alone) {
    CountingObserver shared, staged, both, far;
    EXPECT_EQ(
        Answers(
            {.max_num_batched_tokens = 64, .prefix_caching = true, .rounds = 2, .tensor_ranks = 2},
            &shared),
        alone)
        << "two ranks, chunks of 64, prefix hits";
    EXPECT_GT(shared.prefix_hits, 1000);
    // Several steps in flight need more blocks in layers with a window.
    const int64_t few_for_stages = GetParam().few_blocks + 3;
    EXPECT_EQ(Answers({.max_num_batched_tokens = 64,
                       .prefix_caching = true,
                       .num_blocks = few_for_stages,
                       .stages = 2},
                      &staged),
              alone)
        << "two stages, few blocks";
    EXPECT_GT(staged.preemptions, 0);
    EXPECT_EQ(staged.most_in_flight, 2);
    EXPECT_EQ(shared.most_in_flight, 1);
    EXPECT_EQ(
        Answers({.max_num_seqs = 3, .rounds = 2, .proposes = true, .tensor_ranks = 2, .stages = 2},
                &both),
        alone)
        << "two stages of two ranks, proposed tokens";
    EXPECT_GT(both.accepted_tokens, 500);
    // Prefix hits count when a sequence is first admitted. A few more blocks keep some prefixes
    // until then.
    EXPECT_EQ(Answers({.max_num_batched_tokens = 40,
                       .prefix_caching = true,
                       .num_blocks = few_for_stages + 3,
                       .rounds = 2,
                       .tensor_ranks = 2,
                       .stages = GetParam().most_stages},
                      &far),
              alone)
        << "as many stages as may be, of two ranks, chunks of 40, prefix hits, few blocks";
    EXPECT_GT(far.preemptions, 0);
    EXPECT_GT(far.prefix_hits, 0);
    EXPECT_EQ(far.most_in_flight, GetParam().most_stages);
  }
};

TEST_P(Promise, HoldsHoweverTheWorkIsCut) {
  const std::vector<PromiseAnswer> alone = Answers({.num_threads = 1, .at_once = false});
  ASSERT_EQ(alone.size(), 32u);
  for (const PromiseAnswer& answer : alone) {
    ASSERT_EQ(answer.tokens.size(), 40u);
    ASSERT_EQ(answer.top.size(), 120u);
  }
  EXPECT_NE(alone[0].tokens, alone[1].tokens);
  for (int i = 0; i < 40; ++i) ASSERT_EQ(alone[2].tokens[i] % 3, i % 3) << "not constrained";
  EXPECT_EQ(Answers({.num_threads = 2}), alone) << "all at once, two threads";
  EXPECT_EQ(Answers({.num_threads = 1, .max_num_batched_tokens = 64}), alone) << "chunks of 64";
  EXPECT_EQ(Answers({.num_threads = 2, .max_num_batched_tokens = 7, .max_num_seqs = 7}), alone)
      << "chunks of 7";
  CountingObserver cached;
  EXPECT_EQ(Answers({.num_threads = 2, .prefix_caching = true, .rounds = 2}, &cached), alone)
      << "prefix hits";
  EXPECT_GT(cached.prefix_hits, 1000);
  CountingObserver preempted;
  EXPECT_EQ(Answers({.num_threads = 2,
                     .max_num_batched_tokens = 64,
                     .prefix_caching = true,
                     .num_blocks = GetParam().few_blocks},
                    &preempted),
            alone)
      << "few blocks";
  EXPECT_GT(preempted.preemptions, 0);
  CountingObserver proposed;
  EXPECT_EQ(
      Answers({.num_threads = 2, .max_num_seqs = 3, .rounds = 2, .proposes = true}, &proposed),
      alone)
      << "proposed tokens";
  EXPECT_GT(proposed.accepted_tokens, 500);
  // Sequences skip steps and wait, while others preempt them and while draft tokens are verified.
  constexpr double kLateSeconds = 0.006;
  EXPECT_EQ(Answers({.num_threads = 2,
                     .max_num_batched_tokens = 64,
                     .prefix_caching = true,
                     .num_blocks = GetParam().few_blocks,
                     .mask_seconds = kLateSeconds}),
            alone)
      << "masks that are late, few blocks";
  EXPECT_EQ(Answers({.num_threads = 2,
                     .max_num_seqs = 3,
                     .rounds = 2,
                     .proposes = true,
                     .mask_seconds = kLateSeconds,
                     .stages = std::min(2, GetParam().most_stages)}),
            alone)
      << "masks that are late, proposed tokens, two stages";
  const bool has_ranks = GetParam().most_stages > 1;
  if (has_ranks) CheckRanks(alone);
  EXPECT_EQ(Answers({.num_threads = 2, .prefix_caching = true, .rounds = 2, .engines = 2}), alone)
      << "two engines";
  EXPECT_EQ(Answers({.num_threads = 3,
                     .max_num_batched_tokens = 64,
                     .num_blocks = GetParam().few_blocks,
                     .tensor_ranks = has_ranks ? 2 : 1,
                     .engines = 3}),
            alone)
      << "three engines of two ranks, few blocks";
  CountingObserver from_ram, from_disk;
  EXPECT_EQ(Answers({.num_threads = 2,
                     .max_num_batched_tokens = 64,
                     .max_num_seqs = 4,
                     .prefix_caching = true,
                     .num_blocks = 2 * GetParam().few_blocks,
                     .rounds = 2,
                     .ram_tier = int64_t{64} << 20},
                    &from_ram),
            alone)
      << "few blocks, which come back from memory";
  EXPECT_GT(from_ram.tier_hits, 500);
  EXPECT_EQ(Answers({.max_num_seqs = 4,
                     .prefix_caching = true,
                     .num_blocks = 2 * GetParam().few_blocks,
                     .rounds = 2,
                     .engines = 2,
                     .ram_tier = int64_t{64} << 10,
                     .disk_tier = true},
                    &from_disk),
            alone)
      << "few blocks of two engines, which come back from memory and disk";
  EXPECT_GT(from_disk.tier_hits, 100);
}

// The later checkpoints have layers with a chunk or a window, and so groups of blocks, or recurrent
// states. Llama 4 also has experts and an FP8 cache.
INSTANTIATE_TEST_SUITE_P(
    Models, Promise,
    ::testing::Values(Subject{"llama-bf16", 20}, Subject{"qwen3-bf16", 20},
                      Subject{"llama4-quark-fp8", 10, 3}, Subject{"tiny-qwen2-window", 10},
                      Subject{"tiny-deepseek-v3", 20}, Subject{"tiny-deepseek-v32", 20},
                      Subject{"tiny-minimax-m3", 20, 1}, Subject{"tiny-lfm2", 20},
                      Subject{"tiny-qwen3-next", 20}, Subject{"tiny-deepseek-v4", 20, 1}),
    [](const auto& info) {
      std::string name = info.param.folder;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

class HeadPromise : public Promise {};

TEST_P(HeadPromise, HoldsWithADraftingHead) {
  const std::vector<PromiseAnswer> alone = Answers({.num_threads = 1, .at_once = false});
  int64_t accepted = 0;
  const auto expect = [&](Run run, const char* what) {
    CountingObserver observer;
    EXPECT_EQ(Answers(run, &observer), alone) << what;
    EXPECT_EQ(observer.preemptions > 0, run.num_blocks.has_value()) << what;
    if (run.adaptive) return;
    EXPECT_GT(observer.draft_tokens, 100) << what;
    accepted += observer.accepted_tokens;
    EXPECT_LT(observer.accepted_tokens, observer.draft_tokens) << what;
  };
  expect({.num_threads = 1, .at_once = false, .drafts = 3}, "one after the other");
  expect({.num_threads = 2, .max_num_seqs = 3, .drafts = 2}, "three at once");
  expect({.num_threads = 2, .max_num_batched_tokens = 64, .max_num_seqs = 5, .drafts = 1},
         "chunks of 64");
  expect({.max_num_batched_tokens = 7, .max_num_seqs = 4, .drafts = 5}, "chunks of 7");
  expect({.max_num_seqs = 3, .prefix_caching = true, .rounds = 2, .drafts = 3}, "prefix hits");
  expect({.max_num_seqs = 6,
          .prefix_caching = true,
          .num_blocks = GetParam().few_blocks,
          .drafts = 3,
          .mask_seconds = 0.006},
         "few blocks, masks that are late");
  expect({.max_num_seqs = 20, .prefix_caching = true, .drafts = 3}, "often too many at once");
  expect({.max_num_seqs = 4, .drafts = 4, .adaptive = true}, "as many as pay");
  expect({.max_num_seqs = 4, .prefix_caching = true, .drafts = 3, .engines = 2}, "two engines");
  expect({.max_num_batched_tokens = 64,
          .max_num_seqs = 4,
          .prefix_caching = true,
          .rounds = 2,
          .drafts = 3,
          .tensor_ranks = 2},
         "two ranks, chunks of 64, prefix hits");
  expect({.num_threads = 2, .max_num_seqs = 4, .drafts = 3, .stages = 2}, "two stages");
  expect({.max_num_batched_tokens = 64,
          .max_num_seqs = 6,
          .prefix_caching = true,
          .num_blocks = GetParam().few_blocks + 3,
          .rounds = 2,
          .drafts = 2,
          .tensor_ranks = 2,
          .stages = 2},
         "two stages of two ranks, chunks of 64, few blocks");
  EXPECT_GT(accepted, 10);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, HeadPromise,
    ::testing::Values(Subject{"tiny-eagle3-target", 20, 2, "tiny-eagle3"},
                      Subject{"tiny-eagle3-target", 20, 2, "tiny-eagle3-speculators"},
                      Subject{"tiny-eagle3-target", 20, 2, "tiny-eagle1"},
                      Subject{"tiny-eagle3-target", 20, 2, "tiny-dflash"},
                      Subject{"tiny-mtp-deepseek", 20}, Subject{"tiny-mtp-glm", 20},
                      Subject{"tiny-mtp-qwen", 20}),
    [](const auto& info) {
      const std::string head = info.param.head;
      std::string name = head.empty() ? info.param.folder : head;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// A small engine on the emulated device, or on the device that SLUICE_TESTED_DEVICE names. The
// emulated device computes when the host waits for it.
EngineConfig EmulatedConfig(const std::string& checkpoint) {
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/" + checkpoint);
  config.device = testing::TestedChoice();
  config.max_num_batched_tokens = 16;
  config.max_num_seqs = 4;
  config.max_model_len = 64;
  config.num_blocks_override = 12;
  return config;
}

// Returns the tokens of six requests, greedy and sampled, of different lengths. `change` modifies
// the i-th request.
std::vector<std::vector<int32_t>> AnswersOnDevice(
    const EngineConfig& config, CountingObserver& observer,
    const std::function<void(int32_t i, Request& request)>& change = {},
    std::vector<float>* logprobs = nullptr) {
  Engine::Hooks hooks;
  hooks.observer = &observer;
  auto engine = Engine::Create(config, hooks);
  EXPECT_TRUE(engine) << engine.error().message;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int32_t i = 0; i < 6; ++i) {
    Request request;
    for (int32_t k = 0; k < 3 + 9 * (i % 3); ++k) request.prompt.push_back((i * 13 + k * 7) % 90);
    request.sampling = testing::GreedyFor(8 + i);
    request.sampling.ignore_eos = true;
    if (i % 2 == 1) {
      request.sampling.temperature = 1;
      request.sampling.seed = i;
    }
    if (i == 2) request.sampling.presence_penalty = 1;
    if (i == 3) request.sampling.logprobs = 2;
    if (change) change(i, request);
    request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
    EXPECT_TRUE((*engine)->Submit(std::move(request)));
  }
  std::vector<std::vector<int32_t>> all;
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->WaitForEnd());
    EXPECT_FALSE(sink->error) << sink->error->message;
    all.push_back(sink->tokens());
    if (logprobs == nullptr) continue;
    for (const TokenLogprobs& entry : sink->sequences[0].logprobs)
      logprobs->push_back(entry.logprob);
  }
  engine->reset();
  return all;
}

class HeadPromiseOnDevice : public ::testing::TestWithParam<Subject> {};

// Hidden rows stay on the device. Steps that verify draft tokens and the first pass of the head are
// launched kernel by kernel. If graphs are captured, the further passes of the head and all other
// steps are replayed.
TEST_P(HeadPromiseOnDevice, HeavyHolds) {
  struct Run {
    int drafts = 0;
    bool records = false;
    bool caching = false;
    int64_t num_blocks = 24;
    int64_t max_num_batched_tokens = 16;
  };
  std::vector<float> logprobs;
  std::optional<CountingObserver> observer;
  const auto answers = [&](const Run& run) {
    EngineConfig config = EmulatedConfig(GetParam().folder);
    config.batch_invariant = true;
    config.enable_prefix_caching = run.caching;
    config.block_size = 4;
    config.num_blocks_override = run.num_blocks;
    config.max_num_batched_tokens = run.max_num_batched_tokens;
    config.graphs.records = run.records;
    config.graphs.sizes = {1, 3};
    if (run.drafts > 0) {
      config.draft = DraftOf(GetParam(), run.drafts);
      config.draft.adaptive = false;
    }
    observer.emplace();
    logprobs.clear();
    return AnswersOnDevice(
        config, *observer,
        [](int32_t i, Request& request) {
          request.sampling.max_tokens = 14 + i;
          request.sampling.logprobs = 1;
        },
        &logprobs);
  };
  const auto expected = answers({});
  const std::vector<float> expected_logprobs = logprobs;
  int64_t accepted = 0;
  const auto expect = [&](const Run& run, const char* what) {
    EXPECT_EQ(answers(run), expected) << what;
    // The host computes the logprobs of steps with draft tokens. It adds in a different order than
    // the device.
    ASSERT_EQ(logprobs.size(), expected_logprobs.size()) << what;
    for (size_t i = 0; i < logprobs.size(); ++i)
      EXPECT_NEAR(logprobs[i], expected_logprobs[i], 1e-4) << what << " " << i;
    EXPECT_GT(observer->draft_tokens, 40) << what;
    EXPECT_LT(observer->accepted_tokens, observer->draft_tokens) << what;
    EXPECT_EQ(observer->used_blocks, 0) << what;
    accepted += observer->accepted_tokens;
  };
  expect({.drafts = 3}, "three tokens");
  expect({.drafts = 2, .caching = true, .max_num_batched_tokens = 9}, "chunks of 9");
  expect({.drafts = 3, .records = true}, "graphs");
  expect({.drafts = 2, .caching = true, .num_blocks = 18}, "few blocks");
  EXPECT_GT(observer->preemptions, 0);
  EXPECT_GT(accepted, 3);
}

INSTANTIATE_TEST_SUITE_P(Heads, HeadPromiseOnDevice,
                         ::testing::Values(Subject{"tiny-eagle3-target", 20, 2, "tiny-eagle3"},
                                           Subject{"tiny-eagle3-target", 20, 2, "tiny-eagle1"},
                                           Subject{"tiny-eagle3-target", 20, 2, "tiny-dflash"},
                                           Subject{"tiny-mtp-deepseek-even", 20},
                                           Subject{"tiny-mtp-glm", 20},
                                           Subject{"tiny-mtp-qwen", 20}),
                         [](const auto& info) {
                           const std::string head = info.param.head;
                           std::string name = head.empty() ? info.param.folder : head;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A step that is submitted while another runs contains only tokens that are on the device. Some
// answers need the host for each token; one ends with a stop token, one at its maximum length.
TEST(AsyncScheduling, AnswersAreThoseOfOneStepAtATime) {
  const auto answers = [](bool async, int64_t* most_in_flight) {
    EngineConfig config = EmulatedConfig("qwen3-bf16");
    config.batch_invariant = true;
    config.async_scheduling = async;
    CountingObserver observer;
    const auto all = AnswersOnDevice(config, observer, [](int32_t i, Request& request) {
      if (i == 4) request.sampling.min_tokens = 5;
      if (i == 3) request.sampling.logit_bias = {{7, 3.0f}, {9, -100.0f}};
      if (i == 5) request.sampling.stop_token_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    });
    *most_in_flight = observer.most_in_flight;
    EXPECT_EQ(observer.used_blocks, 0);
    return all;
  };
  int64_t alone = 0, together = 0;
  const auto expected = answers(false, &alone);
  EXPECT_EQ(answers(true, &together), expected);
  EXPECT_EQ(alone, 1);
  EXPECT_EQ(together, 2);
  EXPECT_EQ(expected[0].size(), 8u);
}

// Steps replayed as graphs, one at a time or while another runs. Sequences join and leave, so that
// steps have many sizes, and some have prompts.
TEST(Graphs, HeavyAnswersAreThoseOfStepsThatAreLaunched) {
  const auto answers = [](const char* model, bool records, bool async, int64_t* replayed) {
    EngineConfig config = EmulatedConfig(model);
    config.graphs.records = records;
    config.graphs.sizes = {1, 3, 64};
    config.async_scheduling = async;
    CountingObserver observer;
    const auto all = AnswersOnDevice(config, observer);
    *replayed = observer.replayed;
    return all;
  };
  // The second model has groups of layers with separate block tables, the third has latent
  // attention, and the last one has states. Replayed steps also take snapshots of states.
  for (const char* model : {"qwen3-bf16", "tiny-llama4-mixed", "tiny-youtu-even", "tiny-qwen3.5"}) {
    int64_t replayed = -1;
    const auto expected = answers(model, false, false, &replayed);
    EXPECT_EQ(replayed, 0);
    for (const bool async : {false, true}) {
      EXPECT_EQ(answers(model, true, async, &replayed), expected) << model;
      EXPECT_GT(replayed, 10);
    }
  }
}

// States on a device: requests that continue from snapshots of a common prefix, and sequences that
// are preempted and resumed, get the same answers as those that compute all of their tokens.
TEST(StatesOnDevice, HeavyAnswersDoNotDependOnSnapshotsAndPreemptions) {
  for (const char* model : {"tiny-qwen3.5", "tiny-kimi-linear", "tiny-bamba"}) {
    int64_t hits = 0, preemptions = 0;
    const auto answers = [&](bool caching, int64_t blocks) {
      EngineConfig config = EmulatedConfig(model);
      config.enable_prefix_caching = caching;
      config.block_size = 4;
      config.state_snapshot_interval = 8;
      config.num_blocks_override = blocks;
      CountingObserver observer;
      const auto all = AnswersOnDevice(config, observer, [](int32_t i, Request& request) {
        request.prompt.clear();
        for (int32_t k = 0; k < 26 + i; ++k)
          request.prompt.push_back((k < 21 ? k * 7 : k * i) % 90);
      });
      hits = observer.prefix_hits;
      preemptions = observer.preemptions;
      EXPECT_EQ(observer.used_blocks, 0);
      return all;
    };
    const auto expected = answers(false, 64);
    EXPECT_EQ(hits, 0);
    EXPECT_EQ(preemptions, 0);
    EXPECT_EQ(answers(true, 64), expected) << model;
    EXPECT_GT(hits, 0) << model;
    EXPECT_EQ(answers(true, 24), expected) << model;
    EXPECT_EQ(answers(false, 24), expected) << model;
    EXPECT_GT(preemptions, 0) << model;
  }
}

// Steps that verify draft tokens are launched kernel by kernel; others are replayed.
TEST(Graphs, HeavyAnswersAreTheSameWhereTokensAreProposed) {
  const auto answers = [](bool records, bool proposes, int64_t* replayed) {
    EngineConfig config = EmulatedConfig("qwen3-bf16");
    config.batch_invariant = true;
    config.graphs.records = records;
    config.graphs.sizes = {1, 3, 64};
    if (proposes)
      config.speculation = {.method = SpeculationConfig::Method::kNgram,
                            .num_tokens = 3,
                            .lookup_min = 1,
                            .lookup_max = 1};
    CountingObserver observer;
    const auto all = AnswersOnDevice(config, observer, [](int32_t i, Request& request) {
      if (i % 2 != 0) return;
      // Every token has occurred before, so the tokens that followed it are proposed.
      request.prompt = {1, 2, 3, 1};
      request.sampling.allowed_token_ids = std::vector<int32_t>{1, 2, 3};
    });
    *replayed = observer.replayed;
    return all;
  };
  int64_t launched = -1, replayed = -1, beside_proposed = -1;
  const auto expected = answers(false, false, &launched);
  EXPECT_EQ(answers(true, false, &replayed), expected);
  EXPECT_EQ(answers(true, true, &beside_proposed), expected);
  EXPECT_EQ(launched, 0);
  EXPECT_GT(beside_proposed, 0);
  EXPECT_LT(beside_proposed, replayed);
}

TEST(EngineCreate, SaysItsPlanAndLoadsAnyShapeWithoutWeights) {
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/llama-bf16");
  config.dummy_weights = true;
  config.kv_cache_bytes = int64_t{16} << 20;
  std::vector<std::string> plan;
  Engine::Hooks hooks;
  hooks.print_plan = [&](const std::string& line) { plan.push_back(line); };
  auto engine = Engine::Create(config, hooks);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_GE(plan.size(), 6u);
  EXPECT_EQ((*engine)->info().dtype, ElementType::kBF16);
  EXPECT_FALSE((*engine)->info().isa.empty());
  const auto sink = std::make_shared<CollectingSink>();
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling = testing::GreedyFor(4);
  request.sink = sink;
  ASSERT_TRUE((*engine)->Submit(std::move(request)));
  EXPECT_TRUE(sink->WaitForEnd());
}

TEST(EngineCreate, TakesTheDefaultsOfTheFolderThatIsGiven) {
  const testing::TemporaryFolder folder;
  testing::WriteFile(folder.path() / "generation_config.json",
                     R"({"temperature": 0.25, "eos_token_id": [7, 9]})");
  EngineConfig config;
  config.model_folder = SourcePath("tests/data/checkpoints/llama-bf16");
  config.generation_config_folder = folder.path();
  config.dummy_weights = true;
  config.kv_cache_bytes = int64_t{16} << 20;
  const auto engine = Engine::Create(config, {});
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->info().generation.temperature, 0.25);
  EXPECT_EQ((*engine)->info().generation.eos_token_ids, (std::vector<int32_t>{7, 9}));
}

TEST(EngineCreate, NamesWhatIsMissing) {
  EngineConfig config;
  config.model_folder = "/nonexistent/model";
  const auto engine = Engine::Create(config, {});
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("/nonexistent/model"), std::string::npos);
}

}  // namespace
}  // namespace sluice
