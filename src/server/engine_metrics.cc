#include "server/engine_metrics.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace sluice {
namespace {

std::vector<double> TokenBounds(int64_t max_model_len) {
  std::vector<double> bounds;
  for (double power = 1; power <= static_cast<double>(max_model_len); power *= 10) {
    for (const double step : {1, 2, 5}) {
      if (step * power <= static_cast<double>(max_model_len)) bounds.push_back(step * power);
    }
  }
  return bounds;
}

const std::vector<double> kFirstTokenBounds = {.001, .005, .01, .02, .04, .06, .08, .1,
                                               .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                               20,   40,   80,  160, 640, 2560};
const std::vector<double> kTokenTimeBounds = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                              .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kRequestBounds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIterationBounds = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};

double MetricValue(uint64_t count) {
  return static_cast<double>(count);
}

// Returns a function that reads a counter.
EngineFamilies::Value CountOf(uint64_t EngineMetrics::*counter) {
  return [counter](const EngineMetrics& engine) { return MetricValue(engine.*counter); };
}

EngineFamilies::Value Zero() {
  return [](const EngineMetrics&) { return 0.0; };
}

}  // namespace

void EngineMetrics::SetModel(int engine_number, std::string_view model_name,
                             const EngineInfo& info) {
  number = engine_number;
  labels = fmt::format("engine=\"{}\",model_name=\"{}\"", number, EscapeLabel(model_name));
  first_token = Histogram(kFirstTokenBounds);
  for (Histogram* histogram : {&inter_token, &per_token}) *histogram = Histogram(kTokenTimeBounds);
  for (Histogram* histogram : {&e2e, &queue, &inference, &prefill, &decode})
    *histogram = Histogram(kRequestBounds);
  for (Histogram* histogram :
       {&prompt_lengths, &generation_lengths, &max_generation, &max_tokens, &computed}) {
    *histogram = Histogram(TokenBounds(info.max_model_len));
  }
  sequences = Histogram({1, 2, 5, 10, 20});
  iteration = Histogram(kIterationBounds);
  request_preemptions = Histogram({1, 2, 3, 4, 5, 10, 20});
  last.total_blocks = info.num_blocks;
}

void EngineMetrics::OnStep(const StepStats& stats) {
  last = stats;
  ++num_steps;
  prompt_tokens += static_cast<uint64_t>(stats.new_prompt_tokens);
  generation_tokens += static_cast<uint64_t>(stats.generated_tokens);
  preemptions += static_cast<uint64_t>(stats.preemptions);
  replayed_steps += static_cast<uint64_t>(stats.replayed);
  prefix_queries += static_cast<uint64_t>(stats.prefix_queries);
  prefix_hits += static_cast<uint64_t>(stats.prefix_hits);
  tier_queries += static_cast<uint64_t>(stats.tier_queries);
  tier_hits += static_cast<uint64_t>(stats.tier_hits);
  drafts += static_cast<uint64_t>(stats.drafts);
  draft_tokens += static_cast<uint64_t>(stats.draft_tokens);
  if (stats.drafts > 0) {
    for (size_t i = 0; i < accepted_tokens.size(); ++i)
      accepted_tokens[i] += static_cast<uint64_t>(stats.accepted_tokens[i]);
  }
  if (const int64_t tokens = stats.prompt_tokens + stats.generated_tokens; tokens > 0)
    iteration.Observe(static_cast<double>(tokens));
}

void EngineMetrics::OnFinished(const RequestStats& stats) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const uint64_t times = stats.sequences.size();
  int64_t most = 0;
  for (const SequenceStats& sequence : stats.sequences) {
    ++finished[static_cast<size_t>(sequence.reason)];
    generation_lengths.Observe(number(sequence.generated_tokens));
    request_preemptions.Observe(number(sequence.preemptions));
    const int64_t further = sequence.generated_tokens - 1;
    per_token.Observe(further > 0 ? stats.decode_seconds / number(further) : 0);
    most = std::max(most, sequence.generated_tokens);
  }
  e2e.Observe(stats.total_seconds, times);
  queue.Observe(stats.queue_seconds, times);
  inference.Observe(stats.inference_seconds, times);
  prefill.Observe(stats.prefill_seconds, times);
  decode.Observe(stats.decode_seconds, times);
  prompt_lengths.Observe(number(stats.prompt_tokens), times);
  max_generation.Observe(number(most));
  max_tokens.Observe(number(stats.max_tokens), times);
  computed.Observe(number(stats.prompt_tokens - stats.cached_tokens), times);
  sequences.Observe(static_cast<double>(times));
}

void EngineFamilies::Gauge(std::string_view name, std::string_view help, const Value& value) {
  out_.Family(name, "gauge", help);
  for (const EngineMetrics* engine : engines_) out_.Sample(name, engine->labels, value(*engine));
}

void EngineFamilies::Counter(const std::string& name, std::string_view help, const Value& value) {
  const std::string total = name + "_total";
  out_.Family(total, "counter", help);
  for (const EngineMetrics* engine : engines_) out_.Sample(total, engine->labels, value(*engine));
}

void EngineFamilies::Several(std::string_view name, std::string_view type, std::string_view help,
                             std::string_view label, const std::vector<Labelled>& samples) {
  out_.Family(name, type, help);
  for (const EngineMetrics* engine : engines_) {
    for (const Labelled& one : samples) {
      out_.Sample(name, fmt::format("{},{}=\"{}\"", engine->labels, label, one.value),
                  one.sample(*engine));
    }
  }
}

void EngineFamilies::Distribution(const std::string& name, std::string_view help,
                                  Histogram EngineMetrics::*histogram) {
  out_.Family(name, "histogram", help);
  for (const EngineMetrics* engine : engines_)
    out_.Buckets(name, engine->labels, engine->*histogram);
}

namespace {

void AppendSpeculation(EngineFamilies& families, int num_proposed) {
  if (num_proposed == 0) return;
  families.Counter("vllm:spec_decode_num_drafts",
                   "Number of times that draft tokens were proposed for a sequence.",
                   CountOf(&EngineMetrics::drafts));
  families.Counter("vllm:spec_decode_num_draft_tokens", "Number of proposed draft tokens.",
                   CountOf(&EngineMetrics::draft_tokens));
  families.Counter("vllm:spec_decode_num_accepted_tokens",
                   "Number of draft tokens that were accepted.", [](const EngineMetrics& engine) {
                     return MetricValue(std::accumulate(engine.accepted_tokens.begin(),
                                                        engine.accepted_tokens.end(), uint64_t{0}));
                   });
  std::vector<EngineFamilies::Labelled> places;
  for (int i = 0; i < num_proposed; ++i) {
    places.push_back({std::to_string(i), [i](const EngineMetrics& engine) {
                        return MetricValue(engine.accepted_tokens[static_cast<size_t>(i)]);
                      }});
  }
  families.Several("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
                   "Number of accepted draft tokens by position in the proposal.", "position",
                   places);
}

}  // namespace

void AppendTokenFamilies(EngineFamilies& families, int num_proposed) {
  const EngineFamilies::Value prefix_hits = CountOf(&EngineMetrics::prefix_hits);
  const EngineFamilies::Value tier_hits = CountOf(&EngineMetrics::tier_hits);
  const EngineFamilies::Value pool_hits = [](const EngineMetrics& engine) {
    return MetricValue(engine.prefix_hits - engine.tier_hits);
  };
  const EngineFamilies::Value computed = CountOf(&EngineMetrics::prompt_tokens);
  for (const char* prefix : {"vllm:", "vllm:gpu_"}) {
    families.Counter(fmt::format("{}prefix_cache_queries", prefix),
                     "Prefix cache queries, in terms of number of queried tokens.",
                     CountOf(&EngineMetrics::prefix_queries));
    families.Counter(fmt::format("{}prefix_cache_hits", prefix),
                     "Prefix cache hits, in terms of number of cached tokens.", pool_hits);
  }
  families.Counter(
      "vllm:external_prefix_cache_queries",
      "Queries of the tiers beyond the KV cache, in terms of number of queried tokens.",
      CountOf(&EngineMetrics::tier_queries));
  families.Counter("vllm:external_prefix_cache_hits",
                   "Hits in the tiers beyond the KV cache, in terms of number of cached tokens.",
                   tier_hits);
  families.Counter("vllm:mm_cache_queries",
                   "Images of requests, each looked up in the cache of processed images.",
                   CountOf(&EngineMetrics::image_queries));
  families.Counter("vllm:mm_cache_hits",
                   "Images of requests that were found in the cache of processed images.",
                   CountOf(&EngineMetrics::image_hits));
  families.Counter("vllm:num_preemptions", "Cumulative number of preemptions in the engine.",
                   CountOf(&EngineMetrics::preemptions));
  families.Counter("sluice:replayed_steps", "Steps that a device replayed as CUDA graphs.",
                   CountOf(&EngineMetrics::replayed_steps));
  families.Counter("vllm:prompt_tokens", "Number of prefill tokens processed.",
                   [](const EngineMetrics& engine) {
                     return MetricValue(engine.prompt_tokens + engine.prefix_hits);
                   });
  families.Several(
      "vllm:prompt_tokens_by_source_total", "counter",
      "Number of prompt tokens by source: computed, found in the KV cache, or loaded from a tier.",
      "source",
      {{"local_compute", computed},
       {"local_cache_hit", pool_hits},
       {"external_kv_transfer", tier_hits}});
  families.Counter("vllm:prompt_tokens_cached",
                   "Number of cached prompt tokens (local + external).", prefix_hits);
  families.Several("vllm:prompt_tokens_cached_by_source_total", "counter",
                   "Number of cached prompt tokens by the cache in which they were found.",
                   "source", {{"local", pool_hits}, {"external", tier_hits}});
  families.Counter("vllm:generation_tokens", "Number of generation tokens processed.",
                   CountOf(&EngineMetrics::generation_tokens));
  AppendSpeculation(families, num_proposed);
  std::vector<EngineFamilies::Labelled> reasons;
  static constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};
  for (size_t i = 0; i < 4; ++i) {
    reasons.push_back({kReasons[i], [i](const EngineMetrics& engine) {
                         return MetricValue(engine.finished[i]);
                       }});
  }
  reasons.push_back({"repetition", Zero()});
  families.Several("vllm:request_success_total", "counter",
                   "Count of successfully processed requests.", "finished_reason", reasons);
}

void AppendRequestFamilies(EngineFamilies& families) {
  families.Distribution("vllm:request_prompt_tokens", "Number of prefill tokens processed.",
                        &EngineMetrics::prompt_lengths);
  families.Distribution("vllm:request_generation_tokens", "Number of generation tokens processed.",
                        &EngineMetrics::generation_lengths);
  families.Distribution("vllm:iteration_tokens_total",
                        "Histogram of the number of tokens per engine step.",
                        &EngineMetrics::iteration);
  families.Distribution("vllm:request_max_num_generation_tokens",
                        "Histogram of maximum number of requested generation tokens.",
                        &EngineMetrics::max_generation);
  families.Distribution("vllm:request_num_preemptions",
                        "Histogram of how often a request was preempted.",
                        &EngineMetrics::request_preemptions);
  families.Distribution("vllm:request_params_n", "Histogram of the n request parameter.",
                        &EngineMetrics::sequences);
  families.Distribution("vllm:request_params_max_tokens",
                        "Histogram of the max_tokens request parameter.",
                        &EngineMetrics::max_tokens);
  families.Distribution("vllm:time_to_first_token_seconds",
                        "Histogram of time to first token in seconds.",
                        &EngineMetrics::first_token);
  families.Distribution("vllm:inter_token_latency_seconds",
                        "Histogram of inter-token latency in seconds.",
                        &EngineMetrics::inter_token);
  families.Distribution("vllm:time_per_output_token_seconds",
                        "Histogram of inter-token latency in seconds, under its old name.",
                        &EngineMetrics::inter_token);
  families.Distribution("vllm:request_time_per_output_token_seconds",
                        "Histogram of time_per_output_token_seconds per request.",
                        &EngineMetrics::per_token);
  families.Distribution("vllm:e2e_request_latency_seconds",
                        "Histogram of end-to-end request latency in seconds.", &EngineMetrics::e2e);
  families.Distribution(
      "vllm:request_queue_time_seconds",
      "Histogram of the time that a request spends in the WAITING phase, in seconds.",
      &EngineMetrics::queue);
  families.Distribution(
      "vllm:request_inference_time_seconds",
      "Histogram of the time that a request spends in the RUNNING phase, in seconds.",
      &EngineMetrics::inference);
  families.Distribution(
      "vllm:request_prefill_time_seconds",
      "Histogram of the time that a request spends in the PREFILL phase, in seconds.",
      &EngineMetrics::prefill);
  families.Distribution(
      "vllm:request_decode_time_seconds",
      "Histogram of the time that a request spends in the DECODE phase, in seconds.",
      &EngineMetrics::decode);
  families.Distribution(
      "vllm:request_prefill_kv_computed_tokens",
      "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
      &EngineMetrics::computed);
}

void ThroughputCounts::Add(const EngineMetrics& engine) {
  prompt += engine.prompt_tokens;
  generation += engine.generation_tokens;
  prefix_queries += engine.prefix_queries;
  prefix_hits += engine.prefix_hits;
  running += engine.last.running;
  waiting += engine.last.waiting;
  used_blocks += engine.last.used_blocks;
  total_blocks += engine.last.total_blocks;
}

}  // namespace sluice
