// The metrics of one engine.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/observer.h"
#include "server/histogram.h"
#include "server/metrics_text.h"

namespace sluice {

// Thread safety: one thread at a time.
struct EngineMetrics {
  // Sets the labels and resets the histograms, whose bounds depend on the model. Keeps the
  // counters.
  void SetModel(int number, std::string_view model_name, const EngineInfo& info);

  void OnStep(const StepStats& stats);
  void OnFinished(const RequestStats& stats);

  int number = 0;      // value of the label "engine"
  std::string labels;  // labels of every sample: engine="0",model_name="m"
  StepStats last;
  int64_t num_steps = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t replayed_steps = 0;
  uint64_t prefix_queries = 0;
  uint64_t prefix_hits = 0;  // includes hits in the tiers
  uint64_t tier_queries = 0;
  uint64_t tier_hits = 0;
  // Images of requests, and those that were found in the cache of processed images. All engines
  // share that cache, so these images are counted only for the first engine.
  uint64_t image_queries = 0;
  uint64_t image_hits = 0;
  uint64_t drafts = 0;
  uint64_t draft_tokens = 0;
  // Number of accepted draft tokens, indexed by position in the draft.
  std::array<uint64_t, kMaxSpeculativeTokens> accepted_tokens = {};
  std::array<uint64_t, 4> finished = {};  // number of sequences, indexed by FinishReason
  Histogram first_token;
  Histogram inter_token;
  Histogram per_token;
  Histogram e2e;
  Histogram queue;
  Histogram inference;
  Histogram prefill;
  Histogram decode;
  Histogram prompt_lengths;
  Histogram generation_lengths;
  Histogram max_generation;
  Histogram max_tokens;
  Histogram computed;
  Histogram sequences;
  Histogram iteration;
  Histogram request_preemptions;
};

// Writes metric families that have one or more samples per engine.
class EngineFamilies {
 public:
  using Value = std::function<double(const EngineMetrics& engine)>;

  // `out` and the engines must outlive this object.
  EngineFamilies(MetricsText& out, std::vector<const EngineMetrics*> engines)
      : out_(out), engines_(std::move(engines)) {}

  void Gauge(std::string_view name, std::string_view help, const Value& value);
  void Counter(const std::string& name, std::string_view help, const Value& value);
  // A sample with an additional label.
  struct Labelled {
    std::string value;  // value of the additional label
    Value sample;
  };
  void Several(std::string_view name, std::string_view type, std::string_view help,
               std::string_view label, const std::vector<Labelled>& samples);
  void Distribution(const std::string& name, std::string_view help,
                    Histogram EngineMetrics::*histogram);

 private:
  MetricsText& out_;
  const std::vector<const EngineMetrics*> engines_;
};

// Writes the counters and histograms of requests, steps and tokens. `num_proposed`: maximum number
// of draft tokens at a time; 0: none.
void AppendTokenFamilies(EngineFamilies& families, int num_proposed);
void AppendRequestFamilies(EngineFamilies& families);

// The counts that Metrics::ThroughputLines() shows, for one engine or summed over several.
struct ThroughputCounts {
  uint64_t prompt = 0, generation = 0, prefix_queries = 0, prefix_hits = 0;
  int64_t running = 0, waiting = 0, used_blocks = 0, total_blocks = 0;

  void Add(const EngineMetrics& engine);
};

}  // namespace sluice
