// Requests and results of the engine: token ids only, no text.
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

// Maximum number of sequences per request.
inline constexpr int kMaxSequences = 16384;

enum class FinishReason {
  kStop,    // an end-of-sequence token, a stop token, or StopSequence()
  kLength,  // max_tokens or the context
  kAbort,   // the client went away or the server shut down
  kError,
};

class AdapterUse;     // engine/adapters.h
struct RequestStats;  // engine/observer.h

// New tokens of one sequence of a request, in the order of the text; the last update has `finish`.
struct SequenceUpdate {
  int sequence = 0;  // [0, n)
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;  // one per token, if requested
  int64_t weights = 0;  // number of weight replacements before these tokens were sampled
  std::optional<FinishReason> finish;
  // The entry of stop_token_ids that ended the sequence; nullopt for an end-of-sequence token.
  std::optional<int32_t> stop_token;
};

// Sent once per request, before or with its first tokens.
struct PromptResult {
  int64_t cached_tokens = 0;  // number of tokens taken from the prefix cache
  double queue_seconds = 0;   // from arrival until first scheduled
  // With prompt_logprobs: one entry per prompt token. The first token has no logprob, so its entry
  // is empty.
  std::vector<std::optional<TokenLogprobs>> logprobs;
};

// Receives the results of a request. Called on the engine's thread, in order. The last call is
// OnUpdate with the last sequence's finish, OnPooled or OnError. Must not block: implementations
// put the results into a queue. If that fails for lack of memory, the sink ends its own request;
// exceptions are logged and otherwise ignored.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnPrompt(PromptResult result) = 0;
  virtual void OnUpdate(SequenceUpdate update) = 0;
  // Receives the prompt's vector if the model pools. It is the last call, and OnUpdate is not
  // called.
  virtual void OnPooled(std::vector<float>&& /*vector*/) {}
  // The request has failed. This is the sink's last call.
  virtual void OnError(Error error) = 0;
  // Called once, before or after the calls above, when the request's last sequence has ended or the
  // request has failed or was aborted. Returns true if the sink itself will report the request to
  // `observer` (may be null) later, with the finish reasons that its client receives. If it returns
  // false, the engine reports the request.
  virtual bool OnStats(const RequestStats& /*stats*/, EngineObserver* /*observer*/) {
    return false;
  }
};

// An image of a prompt. Its tokens are prompt[position, position + image->tokens.size()). For
// tokens marked in is_embedding, rows of the tower replace the embeddings.
struct ImageInput {
  int64_t position = 0;
  std::shared_ptr<const ProcessedImage> image;
};

// Rows that replace the embeddings of a prompt, one per token, as the decoder's first layer reads
// them. F32 [rows, width], finite. Immutable once made.
struct PromptRows {
  int64_t width = 0;
  std::vector<float> values;

  int64_t rows() const { return width == 0 ? 0 : std::ssize(values) / width; }
};

struct Request {
  std::string id;               // name of the request in the log
  std::vector<int32_t> prompt;  // >= 1 tokens, within the vocabulary
  // Images, if the model takes them (EngineInfo::takes_images), in ascending order of position,
  // without overlap.
  std::vector<ImageInput> images;
  // Rows that replace the embeddings of the whole prompt; null: none. The prompt's tokens are then
  // placeholders, and penalties ignore them. Only for engines that take rows
  // (EngineInfo::prompt_row_width), without images and prompt_logprobs.
  std::shared_ptr<const PromptRows> rows;
  // Index of the second text's first token, if the prompt consists of two texts that the model
  // distinguishes by token type. REQUIRES: PoolingConfig::num_token_types >= 2.
  std::optional<int32_t> second_text;
  SamplingParams sampling;
  // The tokenizer's end-of-sequence tokens. The model's end tokens also end the request.
  SharedList<int32_t> end_tokens;
  std::shared_ptr<const Constraint> constraint;  // constraint on the answer; may be null
  int num_sequences = 1;                         // n
  // Requests with smaller numbers run first; ignored if the policy is first come first served.
  int64_t priority = 0;
  // Under the fair policy, requests with the same number belong to the same client and share that
  // client's part of the engine.
  uint64_t client = 0;
  // Seed if the request specifies none; nullopt: the engine derives one from its base seed and the
  // request's number.
  std::optional<uint64_t> default_seed;
  std::string cache_salt;  // only requests with the same salt share prefixes
  // One of Engine::adapters(); null: the base model. Only requests with the same adapter share
  // prefixes.
  std::shared_ptr<const AdapterUse> adapter;
  bool use_prefix_cache = true;
  // Whether the request continues work that was accepted before, such as the next step of a beam
  // search or a request that waited for its adapter. A drain finishes such a request like one that
  // already runs.
  bool was_accepted = false;
  std::optional<int> engine;  // index of the engine to use; nullopt: the one with the least work
  std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
  std::shared_ptr<RequestSink> sink;
};

}  // namespace sluice
