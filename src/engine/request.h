// What goes into the engine and what comes out: token ids only, no text.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "constraints/constraint.h"
#include "sampler/sampling_params.h"
#include "sampler/token_logprobs.h"
#include "vision/processed_image.h"

namespace sluice {

class EngineObserver;

// The most sequences of one request.
inline constexpr int kMaxSequences = 16384;

enum class FinishReason {
  kStop,    // an end-of-sequence token, a stop token, or StopSequence()
  kLength,  // max_tokens or the context
  kAbort,   // the client went away or the server shut down
  kError,
};

class AdapterUse;     // engine/adapters.h
struct RequestStats;  // engine/observer.h

// New tokens of one sequence of a request, in order; the last update has `finish`.
struct SequenceUpdate {
  int sequence = 0;  // [0, n)
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;  // one a token where asked for
  int64_t weights = 0;  // how often they had been replaced when these tokens were sampled
  std::optional<FinishReason> finish;
  // The entry of stop_token_ids that ended it; not set for an end-of-sequence token.
  std::optional<int32_t> stop_token;
};

// Sent once a request, before or with its first tokens.
struct PromptResult {
  int64_t cached_tokens = 0;  // taken from the prefix cache
  double queue_seconds = 0;   // from its arrival until it was first scheduled
  // With prompt_logprobs: one entry a prompt token; the first has no logprob and is empty.
  std::vector<std::optional<TokenLogprobs>> logprobs;
};

// Receives the results of a request. Called on the engine's thread, in order, until OnUpdate with
// the finish of the last sequence, OnPooled or OnError, and never after. Must not block:
// implementations put the results into a queue. One that cannot, for lack of memory, ends its own
// request; what it throws is logged and has no other effect.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnPrompt(PromptResult result) = 0;
  virtual void OnUpdate(SequenceUpdate update) = 0;
  // The vector of the prompt, of a model that pools: nothing follows, and OnUpdate is not called.
  virtual void OnPooled(std::vector<float>&& /*vector*/) {}
  // The request failed; nothing follows.
  virtual void OnError(Error error) = 0;
  // The request's last sequence has ended, or it failed or was aborted: called once, in any order
  // with the above. Returns whether the sink counts the request at `observer`, which may be null,
  // later, with the reasons that its client sees; otherwise the engine counts it.
  virtual bool OnStats(const RequestStats& /*stats*/, EngineObserver* /*observer*/) {
    return false;
  }
};

// An image of a prompt, whose tokens are prompt[position, position + image->tokens.size()). Rows of
// the tower take the place of the embeddings of those that are marked (is_embedding).
struct ImageInput {
  int64_t position = 0;
  std::shared_ptr<const ProcessedImage> image;
};

// What a prompt is in place of tokens: a row for each, as the decoder's first layer reads it.
// F32 [rows, width], finite numbers. Immutable after it was made.
struct PromptRows {
  int64_t width = 0;
  std::vector<float> values;

  int64_t rows() const { return width == 0 ? 0 : std::ssize(values) / width; }
};

struct Request {
  std::string id;               // for the log
  std::vector<int32_t> prompt;  // >= 1 tokens, inside the vocabulary
  // Images of models that take them (EngineInfo::takes_images): ascending, not overlapping.
  std::vector<ImageInput> images;
  // Rows in place of the embeddings of the whole prompt, whose tokens are placeholders then and
  // count for no penalty; null: none. Of engines that take them (EngineInfo::prompt_row_width),
  // without images and prompt_logprobs.
  std::shared_ptr<const PromptRows> rows;
  // Where a prompt holds two texts that the model tells apart by token types: the second's first
  // token. Within PoolingConfig::num_token_types.
  std::optional<int32_t> second_text;
  SamplingParams sampling;
  // End-of-sequence tokens besides those of the model: the tokenizer's.
  SharedList<int32_t> end_tokens;
  std::shared_ptr<const Constraint> constraint;  // of the answer; may be null
  int num_sequences = 1;                         // n
  int64_t priority = 0;  // smaller is sooner; ignored if the policy is first come first served
  uint64_t client = 0;   // under the fair policy, requests with the same number share one part
  // Decides what is drawn without a seed; none: the engine's own count of requests.
  std::optional<uint64_t> default_seed;
  std::string cache_salt;  // prefixes are shared only between requests of equal salt
  // An adapter of Engine::adapters(); null: the base alone. Prefixes are shared only within one.
  std::shared_ptr<const AdapterUse> adapter;
  bool use_prefix_cache = true;
  // It belongs to what was accepted before (the next step of a beam search, a request that has
  // waited for its adapter): a drain finishes it too.
  bool was_accepted = false;
  std::optional<int> engine;  // which of several computes it; none: the one with the least to do
  std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
  std::shared_ptr<RequestSink> sink;
};

}  // namespace sluice
