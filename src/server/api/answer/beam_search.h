// Beam search: the n most likely continuations of a prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "server/api/answer/generation.h"

namespace sluice {

struct BeamRequest {
  // `n` is the width of the beam; stop strings are ignored.
  GenerationRequest common;
  double length_penalty = 1.0;  // a score is the log-probability / length ^ length_penalty
  bool ignore_eos = false;
  bool logprobs = false;  // whether the answer shows them
  std::vector<int32_t> end_tokens;
};

// One hypothesis.
struct Beam {
  std::vector<int32_t> tokens;          // with the prompt
  std::vector<TokenLogprobs> logprobs;  // if requested
  double logprob_sum = 0;
  bool ended = false;  // by an end token, which is in `tokens` only if it is to be shown
  int32_t end_token = 0;
};

// One step: replaces `beams` by the best candidates (next[i] continues beams[i]), as many as the
// width of the beam. Candidates with an end token are moved to `completed`, which keeps the same
// number. Equal scores keep their order.
void StepBeams(std::vector<Beam>& beams, std::span<const TokenLogprobs> next,
               const BeamRequest& request, std::vector<Beam>& completed);
// The best of the completed beams and of the open ones, which reached max_tokens; best first.
std::vector<Beam> BestBeams(std::vector<Beam> completed, std::vector<Beam> open,
                            const BeamRequest& request);

// Runs the search for every prompt of the request. A step submits each open beam for one token with
// 2 x width candidates; the prefix cache keeps the beam's prefix. The writer receives each choice
// once, at its end. Ownership: as Generation.
class BeamSearch : public AbortableRequest, public std::enable_shared_from_this<BeamSearch> {
 public:
  // REQUIRES: called on a worker thread.
  static void Start(std::shared_ptr<const ModelContext> model, WorkerPool* pool,
                    std::shared_ptr<ActiveRequests> active, std::shared_ptr<ResponseWriter> client,
                    BeamRequest request, std::unique_ptr<AnswerWriter> answer);
};

}  // namespace sluice
