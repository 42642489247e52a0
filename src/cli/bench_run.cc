#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "cli/configs.h"
#include "cli/progress.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

struct Step {
  Clock::time_point end;
  StepStats stats;
};

}  // namespace

// Records every step and every token. The engine's thread writes; the thread of Run waits and
// reads.
class BenchEngine::Watch : public EngineObserver {
 public:
  class Sink : public RequestSink {
   public:
    explicit Sink(Watch& watch) : watch_(watch) {}
    void OnPrompt(PromptResult) override {}
    void OnUpdate(SequenceUpdate update) override {
      const std::lock_guard lock(watch_.mutex_);
      if (!first_token && !update.tokens.empty()) first_token = Clock::now();
      tokens += static_cast<int64_t>(update.tokens.size());
      if (update.finish) End();
    }
    void OnError(Error problem) override {
      const std::lock_guard lock(watch_.mutex_);
      error = std::move(problem);
      End();
    }

    std::optional<Clock::time_point> first_token, last_token;
    int64_t tokens = 0;
    std::optional<Error> error;

   private:
    void End() {
      last_token = Clock::now();
      ++watch_.ended_;
      watch_.changed_.notify_all();
    }
    Watch& watch_;
  };

  void OnStep(const StepStats& stats) override {
    const std::lock_guard lock(mutex_);
    steps_.push_back({Clock::now(), stats});
  }
  void OnFirstToken(double) override {}
  void OnInterToken(double) override {}
  void OnFinished(const RequestStats&) override {}

  void Begin() {
    const std::lock_guard lock(mutex_);
    steps_.clear();
    ended_ = 0;
  }
  void WaitFor(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= count; });
  }
  std::vector<Step> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Step> steps_;
  int64_t ended_ = 0;
};

BenchEngine::BenchEngine() : watch_(std::make_unique<Watch>()) {}
BenchEngine::~BenchEngine() {
  engine_.reset();
}

Result<std::unique_ptr<BenchEngine>> BenchEngine::Load(const options::Settings& settings,
                                                       int64_t num_sequences, int64_t tokens) {
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(EngineConfig config, MakeEngineConfig(settings, model));
  if (config.pooling.runner == RunnerChoice::kPooling) {
    return Fail(ErrorCode::kInvalidArgument,
                "--runner pooling: latency and throughput are measured only for generating models; "
                "measure a server with a pooling model with sluice bench serve",
                "runner");
  }
  config.pooling.runner = RunnerChoice::kGenerate;
  if (!config.max_num_seqs) config.max_num_seqs = std::min(num_sequences, kDefaultMaxNumSeqs);
  if (!config.max_model_len) config.max_model_len = tokens;
  if (!config.kv_cache_bytes && !config.memory_utilization && !config.num_blocks_override) {
    config.num_blocks_override =
        *config.max_num_seqs * ((tokens + config.block_size) / config.block_size + 1);
  }
  std::unique_ptr<BenchEngine> bench(new BenchEngine());
  ProgressBar bar("loading");
  Engine::Hooks hooks;
  hooks.observer = bench->watch_.get();
  hooks.load_progress = [&bar](int64_t done, int64_t total) { bar.Update(done, total); };
  auto engine = Engine::Create(config, std::move(hooks));
  bar.Finish();
  if (!engine) return tl::unexpected<Error>(std::move(engine).error());
  bench->engine_ = *std::move(engine);
  return bench;
}

const EngineInfo& BenchEngine::info() const {
  return engine_->info();
}

Result<BatchResult> BenchEngine::Run(int64_t count, int64_t input_len, int64_t output_len) {
  std::mt19937_64 random(next_seed_++);
  std::uniform_int_distribution<int32_t> any_token(
      0, static_cast<int32_t>(info().model.vocab_size) - 1);
  std::vector<std::shared_ptr<Watch::Sink>> sinks;
  std::vector<Clock::time_point> submitted;
  watch_->Begin();
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    request.id = fmt::format("bench-{}", i);
    request.prompt.resize(static_cast<size_t>(input_len));
    for (int32_t& token : request.prompt) token = any_token(random);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = output_len;
    request.sampling.ignore_eos = true;
    request.use_prefix_cache = false;
    sinks.push_back(std::make_shared<Watch::Sink>(*watch_));
    request.sink = sinks.back();
    request.arrival = Clock::now();
    submitted.push_back(request.arrival);
    RETURN_IF_ERROR(engine_->Submit(std::move(request)));
  }
  watch_->WaitFor(count);

  BatchResult result;
  Clock::time_point all_started = submitted[0], last_end = submitted[0];
  for (int64_t i = 0; i < count; ++i) {
    const Watch::Sink& sink = *sinks[static_cast<size_t>(i)];
    if (sink.error) return tl::unexpected<Error>(*sink.error);
    if (!sink.first_token)
      return Fail(ErrorCode::kInternal, fmt::format("prompt {} ended without a token", i));
    result.first_token_seconds.push_back(
        Seconds(*sink.first_token - submitted[static_cast<size_t>(i)]));
    all_started = std::max(all_started, *sink.first_token);
    last_end = std::max(last_end, *sink.last_token);
    result.generated_tokens += sink.tokens;
  }
  result.prompt_tokens = count * input_len;
  result.seconds = Seconds(last_end - submitted[0]);
  result.prefill_seconds = Seconds(all_started - submitted[0]);
  // Counts only whole steps after the last one with prompt tokens, while no sequence has ended.
  std::optional<Clock::time_point> begin;
  for (const Step& step : watch_->steps()) {
    if (step.stats.prompt_tokens > 0) {
      begin = step.end;
      result.decode = {};
      result.decode_seconds = 0;
    } else if (begin && step.stats.generated_tokens >= count) {
      ++result.decode.steps;
      result.decode.tokens += step.stats.generated_tokens;
      result.decode.model_seconds += step.stats.model_seconds;
      result.decode_seconds = Seconds(step.end - *begin);
    }
  }
  return result;
}

}  // namespace sluice::cli
