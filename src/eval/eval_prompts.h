// Makes prompts from questions: solved examples come first, then the question.
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
  // Whether to draw the examples from the questions themselves, but never the question that is
  // asked.
  bool from_same_questions = true;
};

// Returns the examples for each of the first `limit` questions, drawn as lm_eval draws them.
// kInvalidArgument if there are too few.
Result<std::vector<std::vector<EvalQuestion>>> PickExamples(
    const std::vector<EvalQuestion>& questions, size_t limit, const std::vector<EvalQuestion>& pool,
    const FewShotOptions& options);

// Returns the examples, then the question, each as "Question: ...\nAnswer:", in the format of
// GSM8K's task.
std::string CompletionPrompt(const EvalQuestion& question,
                             const std::vector<EvalQuestion>& examples);

// Returns the same as messages of a conversation. `multiturn`: each example is a separate turn;
// otherwise everything is in a single user message.
json::Value ChatPrompt(const EvalQuestion& question, const std::vector<EvalQuestion>& examples,
                       bool multiturn);

// The stop strings of an answer.
const std::vector<std::string>& EvalStopTexts();

}  // namespace sluice
