// One API request while it is being answered: several prompts, n sequences each, from the engine's
// tokens to text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/api/active_requests.h"
#include "server/api/api_error.h"
#include "server/api/model_context.h"
#include "server/api/prompt.h"
#include "server/api/repetition.h"
#include "server/api/text_stream.h"
#include "server/api/worker_pool.h"
#include "server/http/http_types.h"

namespace sluice {

// What a choice has gained: one step's tokens, or several steps' if the client reads slowly.
struct ChoiceDelta {
  int choice = 0;  // prompt index x n + sequence
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::optional<FinishReason> finish;
  std::optional<std::string> stop_string;  // what ended it
  std::optional<int32_t> stop_token;
  bool repetition = false;  // it went round in circles
};

// How an answer is written. Called by one thread at a time, never after OnDone or OnFailure.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void OnPrompt(int prompt, PromptResult result) = 0;
  virtual void OnDelta(ChoiceDelta delta) = 0;
  // A stream has had nothing to say for --sse-keep-alive-interval.
  virtual void OnSilence() {}
  virtual void OnDone() = 0;
  virtual void OnFailure(const ApiError& error) = 0;
  // What is kept for a whole answer has become more than a client may make the server keep: the
  // request is to fail.
  virtual bool is_too_large() const { return false; }
};

struct GenerationRequest {
  std::string id;
  std::vector<Prompt> prompts;
  std::vector<SamplingParams> sampling;  // one a prompt
  int n = 1;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  int64_t stream_interval = 1;  // tokens between two deltas, but for the first and the last
  bool stream = false;
  int64_t priority = 0;
  std::string cache_salt;
  RepetitionRule repetition;
};

// Hands the prompts to the engine and its tokens, on the worker pool, to the answer. When the
// client goes away the sequences are aborted at once. A client that reads slowly makes deltas
// larger, never the queue longer than the tokens themselves. Ownership: kept alive by the
// connection, the engine's sinks and tasks until it is over.
class Generation : public AbortableRequest, public std::enable_shared_from_this<Generation> {
 public:
  // REQUIRES: called on a worker thread. Prompts are submitted before it returns, or later where
  // `active` holds requests back; errors go to `answer`.
  static void Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                    std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> writer,
                    GenerationRequest request, std::unique_ptr<AnswerWriter> answer);
};

}  // namespace sluice
