#include "eval/eval_prompts.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/python_random.h"

namespace sluice {
namespace {

std::string QuestionText(const EvalQuestion& question) {
  return fmt::format("Question: {}\nAnswer:", question.question);
}

std::vector<EvalQuestion> Drawn(PythonRandom& random, const std::vector<EvalQuestion>& pool,
                                size_t count) {
  std::vector<EvalQuestion> drawn;
  for (const size_t i : random.Sample(pool.size(), count)) drawn.push_back(pool[i]);
  return drawn;
}

tl::unexpected<Error> TooFew(size_t found, size_t wanted) {
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--num-fewshot needs {} solved examples, found {}: give --fewshot a file with "
                  "more, or a smaller --num-fewshot",
                  wanted, found),
      "num-fewshot");
}

json::Value EvalMessage(std::string_view role, std::string text) {
  json::Value message{json::Value::Object{}};
  message.Set("role", json::Value(role));
  message.Set("content", json::Value(std::move(text)));
  return message;
}

}  // namespace

Result<std::vector<std::vector<EvalQuestion>>> PickExamples(
    const std::vector<EvalQuestion>& questions, size_t limit, const std::vector<EvalQuestion>& pool,
    const FewShotOptions& options) {
  const auto count = static_cast<size_t>(options.count);
  limit = std::min(limit, questions.size());
  std::vector<std::vector<EvalQuestion>> all(limit);
  if (count == 0) return all;
  // Draws one more example than needed, because the question itself may be among them and is then
  // skipped.
  const size_t drawn_count = options.from_same_questions ? count + 1 : count;
  if (pool.size() < drawn_count) return TooFew(pool.size(), drawn_count);
  PythonRandom random(options.seed);
  for (size_t i = 0; i < limit; ++i) {
    std::vector<EvalQuestion> examples = Drawn(random, pool, drawn_count);
    if (options.from_same_questions) {
      std::erase(examples, questions[i]);
      if (examples.size() < count) {
        std::vector<EvalQuestion> others = pool;
        std::erase(others, questions[i]);
        if (others.size() < count) return TooFew(others.size(), count);
        examples = Drawn(random, others, count);
      }
      examples.resize(count);
    }
    all[i] = std::move(examples);
  }
  return all;
}

std::string CompletionPrompt(const EvalQuestion& question,
                             const std::vector<EvalQuestion>& examples) {
  std::string text;
  for (const EvalQuestion& example : examples)
    text += QuestionText(example) + " " + example.answer + "\n\n";
  return text + QuestionText(question);
}

json::Value ChatPrompt(const EvalQuestion& question, const std::vector<EvalQuestion>& examples,
                       bool multiturn) {
  json::Value::Array messages;
  if (!multiturn) {
    messages.push_back(EvalMessage("user", CompletionPrompt(question, examples)));
    return json::Value(std::move(messages));
  }
  for (const EvalQuestion& example : examples) {
    messages.push_back(EvalMessage("user", QuestionText(example)));
    messages.push_back(EvalMessage("assistant", example.answer));
  }
  messages.push_back(EvalMessage("user", QuestionText(question)));
  return json::Value(std::move(messages));
}

const std::vector<std::string>& EvalStopTexts() {
  static const std::vector<std::string> texts = {"Question:", "</s>", "<|im_end|>"};
  return texts;
}

}  // namespace sluice
