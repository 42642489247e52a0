// The answers of POST /v1/systemone and /v1/decisions, computed from the logprobs of labels as the
// first token of a reply.
#pragma once

#include <functional>
#include <vector>

#include "server/api/answer/answer_writer.h"
#include "server/api/openai/decision_request.h"

namespace sluice {

// The logprobs of a question's labels, followed by the logprobs of the labels' other spellings,
// each in the order of the options.
struct DecisionRead {
  std::vector<double> logprobs;
  bool argmax_is_label = false;
};

// The probabilities of the labels relative to each other, and the total probability of all labels.
struct DecisionOdds {
  std::vector<double> probabilities;  // one for each option; their sum is 1
  double label_mass = 0;              // total probability of all labels among all tokens
  size_t best = 0;
};

DecisionOdds OddsOf(const DecisionRead& read, size_t num_options);

// Returns a factory for a writer that answers once all questions have results. REQUIRES: the answer
// has one prompt for each question, in the request's order. The logprobs of the first token after a
// prompt are the logprobs of the question's labels.
std::function<WriterFactory> MakeDecisionWriter(DecisionRequest request);

}  // namespace sluice
