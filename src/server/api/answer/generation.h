// A request in progress: converts the engine's tokens (several prompts, n sequences for each) to
// the events of an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/api/answer/answer_parsing.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/text_stream.h"
#include "server/api/common/active_requests.h"
#include "server/api/common/model_context.h"
#include "server/api/common/request_trace.h"
#include "server/api/common/worker_pool.h"
#include "server/api/guard/client_limits.h"
#include "server/api/request/prompt.h"
#include "server/api/request/repetition.h"
#include "server/http/http_types.h"

namespace sluice {

struct GenerationRequest {
  std::string id;
  std::vector<Prompt> prompts;
  std::vector<SamplingParams> sampling;  // one for each prompt
  int n = 1;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  int64_t stream_interval = 1;  // number of tokens per step of a choice; its first and last step
                                // may have fewer
  bool stream = false;
  int64_t priority = 0;
  std::optional<int> engine;                     // index of the engine; nullopt: any
  uint64_t client = 0;                           // number from ClientIdentity
  std::shared_ptr<ClientLimits::Ticket> ticket;  // null if the client has no limits
  std::string cache_salt;
  std::shared_ptr<const AdapterUse> adapter;  // null: no adapter
  RepetitionRule repetition;
  std::shared_ptr<const Constraint> constraint;  // constraint for every sequence; may be null
  std::optional<AnswerParsing> parsing;          // nullopt: all text is content
  bool splits_logprobs = false;                  // whether to fill TextEvent::logprobs
  std::shared_ptr<const RequestTrace> trace;     // null: the request is not traced
  RequestClock clock;                            // started when the request arrived
};

// Submits the prompts to the engine and passes the engine's tokens, as events, to the writer, on
// the worker pool. When the client disconnects, the sequences are aborted immediately. Updates for
// a slow client are merged, so the queue takes little more memory than the tokens themselves.
// Ownership: the connection, the engine's sinks and tasks keep this object alive until the request
// has ended.
class Generation : public AbortableRequest, public std::enable_shared_from_this<Generation> {
 public:
  // Submits the prompts before it returns or, while `active` defers requests, later. Errors go to
  // `answer`, which writes to `client`. REQUIRES: called on a worker thread.
  static void Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                    std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> client,
                    GenerationRequest request, std::unique_ptr<AnswerWriter> answer);
};

}  // namespace sluice
