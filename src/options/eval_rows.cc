#include "options/rows.h"

namespace sluice::options {
namespace {

std::vector<Option> AccuracyRows() {
  constexpr std::string_view kGroup = "Accuracy";
  return {
      {.name = "task",
       .type = Type::kChoice,
       .default_value = "gsm8k-style",
       .group = kGroup,
       .commands = kEval,
       .help = "How questions are asked and answers judged: gsm8k-style asks for steps and "
               "\"#### number\", with the prompts, stop texts and filters of lm_eval's gsm8k.",
       .choices = "gsm8k-style"},
      {.name = "eval-url",
       .group = kGroup,
       .commands = kEval,
       .help = "Running server to ask, as http://host:port, with or without /v1 and what follows; "
               "--model is then a name that it serves (default: its first). Without it --model is "
               "loaded here.",
       .flag = "base-url",
       .aliases = "--url"},
      {.name = "eval-model",
       .group = kGroup,
       .commands = kEval,
       .help = "With --base-url a name that the server lists; without it a checkpoint to load "
               "here, as a "
               "folder or as a model id that is in the local Hugging Face cache.",
       .flag = "model",
       .aliases = "-m|--model-name"},
      {.name = "num-fewshot",
       .type = Type::kInteger,
       .default_value = "5",
       .group = kGroup,
       .commands = kEval,
       .help = "Solved examples in front of each question.",
       .range = {0, 1000}},
      {.name = "fewshot",
       .group = kGroup,
       .commands = kEval,
       .help = "File of the examples; default: the questions' own file, without the one asked."},
      {.name = "fewshot-seed",
       .type = Type::kInteger,
       .default_value = "1234",
       .group = kGroup,
       .commands = kEval,
       .help = "Seed of the choice of examples; the default is lm_eval's, with the same choice.",
       .range = {0, 4294967295.0}},
      {.name = "fewshot-as-multiturn",
       .type = Type::kFlag,
       .default_value = "true",
       .group = kGroup,
       .commands = kEval,
       .help = "With --apply-chat-template: each example is a turn of its own."},
      {.name = "apply-chat-template",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kEval,
       .help = "Ask by the chat API instead of with plain texts."},
      {.name = "add-special-tokens",
       .type = Type::kFlag,
       .default_value = "true",
       .group = kGroup,
       .commands = kEval,
       .help = "Let the tokenizer put its first token in front of plain texts."},
      {.name = "limit",
       .type = Type::kInteger,
       .group = kGroup,
       .commands = kEval,
       .help = "Ask only so many questions, the first ones.",
       .range = {1, 1e9}},
      {.name = "max-gen-toks",
       .type = Type::kInteger,
       .default_value = "256",
       .group = kGroup,
       .commands = kEval,
       .help = "Most tokens of an answer.",
       .range = {1, 1e7}},
      {.name = "num-concurrent",
       .type = Type::kInteger,
       .default_value = "16",
       .group = kGroup,
       .commands = kEval,
       .help = "Requests under way at a time.",
       .range = {1, 1024}},
      {.name = "max-retries",
       .type = Type::kInteger,
       .default_value = "3",
       .group = kGroup,
       .commands = kEval,
       .help = "Repetitions of a request that the server did not answer.",
       .range = {0, 1000}},
      {.name = "timeout",
       .type = Type::kNumber,
       .default_value = "300",
       .group = kGroup,
       .commands = kEval,
       .help = "Seconds for one answer.",
       .range = {0.001, 1e6}},
      {.name = "output-path",
       .group = kGroup,
       .commands = kEval,
       .help = "File for the scores, a JSON object with the keys of lm_eval's."},
      {.name = "log-samples",
       .group = kGroup,
       .commands = kEval,
       .help = "File for the questions with their answers, as JSON lines."},
      {.name = "baseline",
       .group = kGroup,
       .commands = kEval,
       .help = "Scores to compare with, a file of --output-path or of lm_eval; a drop of more than "
               "--max-drop makes the exit code 1."},
      {.name = "max-drop",
       .type = Type::kNumber,
       .default_value = "0",
       .group = kGroup,
       .commands = kEval,
       .help = "How far a score may lie below --baseline: 0.01 is one question of a hundred.",
       .range = {0, 1}},
  };
}

std::vector<Option> LintRows() {
  constexpr std::string_view kGroup = "Recipes";
  return {
      {.name = "accelerator",
       .type = Type::kStrings,
       .group = kGroup,
       .commands = kRecipe,
       .help = "Accelerators that memory and speed are worked out for (H200, GB10, ...); default: "
               "those that the recipe names, else all known."},
      {.name = "lint-json",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kRecipe,
       .help = "Print one JSON object instead of text.",
       .flag = "json"},
      {.name = "lint-strict",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kRecipe,
       .help = "Exit code 1 where errors are found.",
       .flag = "strict"},
  };
}

}  // namespace

std::vector<Option> EvalRows() {
  std::vector<Option> rows = AccuracyRows();
  for (const Option& row : LintRows()) rows.push_back(row);
  return rows;
}

}  // namespace sluice::options
