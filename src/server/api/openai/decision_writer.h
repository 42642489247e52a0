// The answers of POST /v1/systemone and /v1/decisions: what a model's first token of a reply says
// of each label.
#pragma once

#include <functional>
#include <vector>

#include "server/api/answer/answer_writer.h"
#include "server/api/openai/decision_request.h"

namespace sluice {

// The logprobs of a question's labels and, behind them, of their other spellings, in the order of
// the options.
struct DecisionRead {
  std::vector<double> logprobs;
  bool argmax_is_label = false;
};

// What the labels are to each other, and all of them to the vocabulary.
struct DecisionOdds {
  std::vector<double> probabilities;  // by option; they add up to 1
  double label_mass = 0;              // of the labels among all tokens
  size_t best = 0;
};

DecisionOdds OddsOf(const DecisionRead& read, size_t num_options);

// Writes one answer once all questions are read. The prompts of the answer are the questions, in
// order; the logprobs of the first token are those of the question's labels.
std::function<WriterFactory> MakeDecisionWriter(DecisionRequest request);

}  // namespace sluice
