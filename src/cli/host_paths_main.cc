// Runs one of the host's frequently executed code paths COUNT times, so that tools/regressions.py
// can count its instructions: host_paths CASE COUNT.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/source_path_testing.h"
#include "sampler/sampler.h"
#include "scheduler/scheduler.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/text_stream.h"
#include "server/api/common/request_body.h"
#include "server/api/openai/chat_request.h"
#include "server/fake_engine.h"
#include "server/model_context_testing.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

constexpr int64_t kVocab = 128256;

// Plans a step with 256 decoding and 1,024 waiting sequences.
std::function<void()> SchedulerStep() {
  struct State {
    State() : pool(256 * MostBlocks(Limits(), 4096)), scheduler(Limits(), pool, nullptr) {}
    static SchedulerLimits Limits() {
      SchedulerLimits limits;
      limits.block_size = 16;
      limits.max_num_batched_tokens = 2048;
      limits.max_num_seqs = 256;
      limits.max_prompt_logit_rows = 32;
      limits.chunked_prefill = true;
      limits.policy = SchedulingPolicy::kFair;
      return limits;
    }
    void Step() {
      const StepPlan& plan = scheduler.Plan();
      scheduler.Commit();
      for (const PlannedSlice& slice : plan.slices) slice.sequence->tokens.push_back(1);
    }
    BlockPool pool;
    Scheduler scheduler;
    std::vector<std::unique_ptr<ScheduledSequence>> sequences;
  };
  auto state = std::make_shared<State>();
  for (int64_t i = 0; i < 256 + 1024; ++i) {
    auto sequence = std::make_unique<ScheduledSequence>();
    sequence->tokens = {1};
    sequence->tokens.reserve(4096);
    sequence->num_prompt_tokens = 1;
    sequence->max_total_tokens = 4096;
    sequence->client = static_cast<uint64_t>(i % 16);
    state->scheduler.Add(*sequence);
    state->sequences.push_back(std::move(sequence));
  }
  while (state->scheduler.num_running() < 256) state->Step();
  return [state] { state->Step(); };
}

// Samples a token from Llama 3's vocabulary on one thread.
std::function<void()> Sample(double temperature, double top_p) {
  struct State {
    SamplingParams params;
    std::vector<float> logits = std::vector<float>(kVocab);
    std::vector<int32_t> prompt = std::vector<int32_t>(200, 5);
    ThreadPool pool{1};
    Sampler sampler{kVocab, 1};
    SequenceSampling sequence;
  };
  auto state = std::make_shared<State>();
  std::mt19937 random(1);
  for (float& logit : state->logits) logit = static_cast<float>(random() % 65536) / 8192.0f - 4.0f;
  for (int i = 0; i < 20; ++i) state->logits[random() % kVocab] += 12;
  state->params.temperature = temperature;
  state->params.top_p = top_p;
  state->sequence.params = &state->params;
  return [state] {
    SampleJob job;
    job.logits = state->logits;
    job.sequence = &state->sequence;
    job.history = {state->prompt, 100};
    state->sampler.Sample(state->pool, {&job, 1});
    ++state->sequence.seed;
  };
}

std::string Text() {
  std::string text;
  for (int i = 0; text.size() < 4096; ++i) {
    text += "Tom has " + std::to_string(i * 7 % 90) + " apples and buys " + std::to_string(i) +
            " more; how many apples does he have now?\n";
  }
  return text;
}

std::shared_ptr<const Tokenizer> AbacusTokenizer() {
  return std::shared_ptr<const Tokenizer>(*Tokenizer::Load(SourcePath("models/abacus")));
}

// Tokenizes 4 KiB of text.
std::function<void()> Encode() {
  return [tokenizer = AbacusTokenizer(), text = Text()] {
    if (tokenizer->Encode(text, true).size() < 100) std::abort();
  };
}

class Counter final : public ResponseWriter {
 public:
  void Send(HttpResponse response) override { bytes += response.body.size(); }
  void StartStream(HttpResponse) override {}
  void WriteChunk(std::string_view data) override { bytes += data.size(); }
  void EndStream() override {}
  bool backlogged() const override { return false; }
  bool closed() const override { return false; }
  void SetCallbacks(std::function<void()>, std::function<void()>) override {}
  size_t bytes = 0;
};

// Processes a token of a streamed chat: detokenizes it and writes an event.
std::function<void()> StreamToken() {
  struct State {
    FakeEngine engine;
    std::shared_ptr<const Tokenizer> tokenizer = AbacusTokenizer();
    std::vector<int32_t> tokens = tokenizer->Encode(Text(), false);
    std::unique_ptr<TextStream> stream;
    std::shared_ptr<Counter> client = std::make_shared<Counter>();
    std::unique_ptr<AnswerWriter> writer;
    size_t next = 0;
  };
  auto state = std::make_shared<State>();
  ServerConfig config;
  config.served_model_names = {"abacus"};
  AnswerOptions options;
  options.model = TestModelContext(config, &state->engine);
  options.id = "chatcmpl-0123456789abcdef";
  options.created = 1700000000;
  options.prompts.resize(1);
  options.stream = true;
  state->writer = MakeVllmChatWriter(std::move(options), state->client);
  state->stream = std::make_unique<TextStream>(*state->tokenizer, std::span<const int32_t>(),
                                               StopRules(), /*skip_special_tokens=*/true);
  return [state] {
    const int32_t token = state->tokens[state->next++ % state->tokens.size()];
    if (state->stream->Push(token)) std::abort();
    state->writer->Write({TokensEvent{0, {token}, {}}, TextEvent{0, state->stream->Take()}});
  };
}

// Parses the request of a chat with 20 messages.
std::function<void()> ReadRequest() {
  json::Value::Array list;
  for (int i = 0; i < 20; ++i) {
    list.emplace_back(json::Value::Object{{"role", i % 2 == 0 ? "user" : "assistant"},
                                          {"content", Text().substr(0, 400)}});
  }
  const std::string text =
      json::Write(json::Value(json::Value::Object{{"model", "abacus"},
                                                  {"messages", json::Value(std::move(list))},
                                                  {"temperature", 0.7},
                                                  {"max_tokens", int64_t{100}},
                                                  {"stream", true}}));
  return [text, config = ServerConfig()] {
    const auto body = ParseBodyText(text);
    if (!body || !ReadChatRequest(*body, config, true)) std::abort();
  };
}

const std::map<std::string, std::function<std::function<void()>()>>& Cases() {
  static const std::map<std::string, std::function<std::function<void()>()>> cases = {
      {"scheduler-step", SchedulerStep},
      {"sample-greedy", [] { return Sample(0, 1); }},
      {"sample-top-p", [] { return Sample(0.8, 0.95); }},
      {"encode", Encode},
      {"stream-token", StreamToken},
      {"read-request", ReadRequest},
  };
  return cases;
}

int Main(int argc, char** argv) {
  const auto found = argc == 3 ? Cases().find(argv[1]) : Cases().end();
  if (found == Cases().end()) {
    std::fprintf(stderr, "usage: host_paths CASE COUNT; cases:");
    for (const auto& [name, make] : Cases()) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::function<void()> run = found->second();
  for (int64_t count = std::atoll(argv[2]); count > 0; --count) run();
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::Main(argc, argv);
}
