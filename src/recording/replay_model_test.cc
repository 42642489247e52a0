// Recorded random runs of a small model, with the engine's own thread, are replayed with equal
// steps and bits.
#include <atomic>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/source_path_testing.h"
#include "engine/engine_testing.h"
#include "recording/flight_recorder.h"
#include "recording/recording.h"
#include "recording/replay_run.h"

namespace sluice::recording {
namespace {

// Counts requests that have ended.
class EndSink final : public RequestSink {
 public:
  explicit EndSink(std::atomic<int>* num_open) : num_open_(*num_open) {}
  ~EndSink() override { --num_open_; }
  void OnPrompt(PromptResult /*result*/) override {}
  void OnUpdate(SequenceUpdate /*update*/) override {}
  void OnError(Error /*error*/) override {}

 private:
  std::atomic<int>& num_open_;
};

class RecordedModel : public ::testing::TestWithParam<unsigned> {
 protected:
  RecordedModel() : random_(GetParam()) {
    SetLogLevel(LogLevel::kError);
    std::string name = ::testing::TempDir() + "replayXXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~RecordedModel() override {
    std::filesystem::remove_all(folder_);
    SetLogLevel(LogLevel::kInfo);
  }

  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(unsigned count) { return random_() % count == 0; }

  EngineConfig RandomConfig() {
    constexpr const char* kModels[] = {"qwen3-bf16", "tiny-gemma2", "tiny-lfm2", "tiny-olmo2"};
    EngineConfig config;
    config.model_folder = SourcePath(fmt::format("tests/data/checkpoints/{}", kModels[Pick(0, 3)]));
    config.device = DeviceChoice::kCpu;
    config.num_threads = static_cast<int>(Pick(1, 2));
    config.block_size = static_cast<int>(Pick(1, 8));
    config.max_model_len = 96;
    config.max_num_seqs = Pick(1, 8);
    config.max_num_batched_tokens = std::max<int64_t>(*config.max_num_seqs, Pick(8, 64));
    // The cache has room for little more than one sequence. The model has up to two groups of
    // layers.
    config.num_blocks_override = 2 * (96 / config.block_size + 2) + Pick(0, 40);
    config.enable_prefix_caching = !OneIn(4);
    config.scheduling_policy = static_cast<SchedulingPolicy>(Pick(0, 2));
    config.ageing = {.level_us = Pick(0, 2000), .max_levels = Pick(0, 3)};
    if (OneIn(2)) {
      config.speculation.method =
          OneIn(2) ? SpeculationConfig::Method::kNgram : SpeculationConfig::Method::kSuffix;
      config.speculation.num_tokens = static_cast<int>(Pick(1, 4));
    }
    return config;
  }

  Request RandomRequest(int64_t vocab_size, int number) {
    Request request;
    request.id = fmt::format("request-{}", number);
    const int64_t kind = Pick(0, 2);
    for (int64_t i = Pick(1, 60); i > 0; --i)
      request.prompt.push_back(static_cast<int32_t>((kind * 7 + i * i) % vocab_size));
    std::ranges::reverse(request.prompt);
    request.sampling.max_tokens = Pick(1, 30);
    request.sampling.temperature = OneIn(2) ? 0 : 0.9;
    request.sampling.ignore_eos = OneIn(2);
    if (OneIn(3)) request.sampling.seed = Pick(0, 100);
    if (OneIn(4)) request.sampling.top_p = 0.8;
    if (OneIn(5)) request.sampling.repetition_penalty = 1.2;
    request.num_sequences = OneIn(4) ? 3 : 1;
    request.priority = Pick(-1, 1);
    request.client = random_();
    if (OneIn(5)) request.cache_salt = OneIn(2) ? "a" : "b";
    if (OneIn(6)) request.constraint = std::make_shared<const testing::StripeConstraint>();
    return request;
  }

  void Record(const EngineConfig& config) {
    RecorderSettings settings;
    settings.folder = folder_;
    settings.max_bytes = uint64_t{64} << 20;
    auto recorder = FlightRecorder::Start(std::move(settings));
    ASSERT_TRUE(recorder);
    Engine::Hooks hooks;
    hooks.journal_of = [&](int engine) { return (*recorder)->journal(engine); };
    auto engine = Engine::Create(config, std::move(hooks));
    ASSERT_TRUE(engine) << engine.error().message;
    std::atomic<int> num_open{0};
    const int64_t vocab_size = (*engine)->info().model.vocab_size;
    for (int i = 0; i < kNumRequests; ++i) {
      Request request = RandomRequest(vocab_size, i);
      ++num_open;
      request.sink = std::make_shared<EndSink>(&num_open);
      const auto handle = (*engine)->Submit(std::move(request));
      ASSERT_TRUE(handle) << handle.error().message;
      if (OneIn(2)) std::this_thread::sleep_for(std::chrono::microseconds(Pick(0, 2000)));
      if (OneIn(8)) (*engine)->Abort(*handle);
      if (OneIn(8)) (*engine)->StopSequence(*handle, 0);
      if (OneIn(16)) (*engine)->ResetPrefixCache();
    }
    // Some runs end while requests are not finished.
    const int most_open = OneIn(4) ? kNumRequests / 2 : 0;
    while (num_open > most_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  static constexpr int kNumRequests = 20;
  std::mt19937 random_;
  std::filesystem::path folder_;
};

TEST_P(RecordedModel, HeavyReplaysEqual) {
  EngineConfig config = RandomConfig();
  ASSERT_NO_FATAL_FAILURE(Record(config));
  const auto recording = Recording::Open(folder_);
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_TRUE(recording->warnings().empty());
  config.num_threads = static_cast<int>(Pick(1, 2));
  for (const bool follows_steps : {true, false}) {
    ReplayResult result;
    const Status ran = RunOnEngine(config, recording->streams().at(1),
                                   [&](ReplayJournal& journal, const ReplaySeat& seat) {
                                     ReplayOptions options;
                                     options.follows_steps = follows_steps;
                                     journal.set_options(options);
                                     journal.Replay(seat);
                                     result = journal.result();
                                   });
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(result.note, "");
    EXPECT_FALSE(result.first) << result.first->Text();
    EXPECT_EQ(result.num_requests, kNumRequests);
    EXPECT_GT(result.num_tokens, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RecordedModel, ::testing::Range(0u, 300u));

}  // namespace
}  // namespace sluice::recording
