// From questions to what a model is asked: solved examples first, then the question.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/eval_questions.h"

namespace sluice {

struct FewShotOptions {
  int64_t count = 5;
  uint32_t seed = 1234;
  // The examples come from the questions themselves: the one that is asked is never among them.
  bool from_same_questions = true;
};

// For each of the first `limit` questions the examples that precede it, drawn as lm_eval draws
// them. kInvalidArgument if there are too few.
Result<std::vector<std::vector<EvalQuestion>>> PickExamples(
    const std::vector<EvalQuestion>& questions, size_t limit, const std::vector<EvalQuestion>& pool,
    const FewShotOptions& options);

// "Question: ...\nAnswer:" with the examples in front of it, in the form of GSM8K's task.
std::string CompletionPrompt(const EvalQuestion& question,
                             const std::vector<EvalQuestion>& examples);

// The same as messages of a conversation. `multiturn`: each example is a turn of its own; otherwise
// all is one message of the user.
json::Value ChatPrompt(const EvalQuestion& question, const std::vector<EvalQuestion>& examples,
                       bool multiturn);

// Texts at which an answer ends.
const std::vector<std::string>& EvalStopTexts();

}  // namespace sluice
