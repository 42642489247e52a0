// Beam search: finds the n most likely continuations of a prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "server/api/answer/generation.h"

namespace sluice {

struct BeamRequest {
  // `n` is the width of the beam. Stop strings are ignored.
  GenerationRequest common;
  double length_penalty = 1.0;  // a beam's score is its log-probability / length ^ length_penalty
  bool ignore_eos = false;
  bool logprobs = false;  // whether the answer shows them
  std::vector<int32_t> end_tokens;
};

// One candidate continuation.
struct Beam {
  std::vector<int32_t> tokens;          // includes the prompt
  std::vector<TokenLogprobs> logprobs;  // filled if requested
  double logprob_sum = 0;
  bool ended = false;  // ended by an end token, which is in `tokens` only if it is shown
  int32_t end_token = 0;
};

// Makes one step: replaces `beams` by the best candidates (next[i] continues beams[i]), as many as
// the width of the beam. Moves candidates with an end token to `completed`, which keeps at most the
// same number. Equal scores keep their order.
void StepBeams(std::vector<Beam>& beams, std::span<const TokenLogprobs> next,
               const BeamRequest& request, std::vector<Beam>& completed);
// Returns the best beams, best first, of `completed` and of `open`, the beams that have reached
// max_tokens.
std::vector<Beam> BestBeams(std::vector<Beam> completed, std::vector<Beam> open,
                            const BeamRequest& request);

// Runs the search for every prompt of the request. A step submits each open beam for one token with
// 2 x width candidates; the prefix cache contains the beam's earlier tokens. The writer receives
// each choice once, at its end. Ownership: like Generation.
class BeamSearch : public AbortableRequest, public std::enable_shared_from_this<BeamSearch> {
 public:
  // Starts the search. REQUIRES: called on a worker thread.
  static void Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                    std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> client,
                    BeamRequest request, std::unique_ptr<AnswerWriter> answer);
};

}  // namespace sluice
