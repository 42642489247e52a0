#include "options/rows.h"

namespace sluice::options {
namespace {

void AddAccuracyRows(std::vector<Option>& table) {
  Rows rows(table, "Accuracy", kEval);
  rows.Choice("task", "gsm8k-style", "gsm8k-style",
              "Prompts and scoring. gsm8k-style: questions whose answer ends with \"#### \" and a "
              "number, with the prompts, stop strings and filters of lm_eval's gsm8k.");
  rows.Text("eval-url", "",
            "Running server to evaluate, as http://host:port, https://host:port or unix:///file, "
            "with or without /v1; --model is then one of the server's model names (default: the "
            "first). Without this option, --model is loaded in this process.",
            {.flag = "base-url", .aliases = "--url"});
  rows.Text("eval-model", "",
            "With --base-url: a model name that the server lists; otherwise: the folder or Hugging "
            "Face model id of a checkpoint to load.",
            {.flag = "model", .aliases = "-m|--model-name", .value = ValueKind::kModel});
  rows.Integer("num-fewshot", "",
               "Number of solved examples before each question; default: 5 for plain prompts, as "
               "in lm_eval's gsm8k, and none for the chat API.",
               {.range = {0, 1000}});
  rows.Text("fewshot", "",
            "File with the examples; default: the file of questions, without the current question.",
            {.value = ValueKind::kFile});
  rows.Integer(
      "fewshot-seed", "1234",
      "Seed for the choice of examples; with the default, the choice is the same as in lm_eval.",
      {.range = {0, 4294967295.0}});
  rows.Flag("fewshot-as-multiturn",
            "With --apply-chat-template: make each example a turn of the conversation.",
            {.default_value = "true"});
  rows.Flag("apply-chat-template",
            "Use the chat API instead of plain prompts; default: true if the model has a chat "
            "template and --base-url does not end with /completions.");
  rows.Flag("add-special-tokens",
            "Let the tokenizer add special tokens (such as BOS) to plain prompts.",
            {.default_value = "true"});
  rows.Integer("limit", "", "Use only this number of questions, from the first.",
               {.range = {1, 1e9}});
  rows.Integer("max-gen-toks", "256", "Maximum number of tokens of an answer.",
               {.range = {1, 1e7}});
  rows.Integer("num-concurrent", "16", "Number of concurrent requests.", {.range = {1, 1024}});
  rows.Integer("max-retries", "3", "Number of times that a failed request is retried.",
               {.range = {0, 1000}});
  rows.Number("timeout", "300", "Timeout of a request in seconds.", {.range = {0.001, 1e6}});
  rows.Flag("eval-json", "Print the JSON object of --output-path instead of the table.",
            {.flag = "json"});
  rows.Text("output-path", "", "File for the scores, a JSON object with the keys of lm_eval.",
            {.value = ValueKind::kFile});
  rows.Text("log-samples", "", "File for questions and answers, as JSON lines.",
            {.value = ValueKind::kFile});
  rows.Text("baseline", "",
            "Scores to compare with: a file of --output-path or of lm_eval. If the score is lower "
            "by more than --max-drop, the exit code is 1.",
            {.value = ValueKind::kFile});
  rows.Number(
      "max-drop", "0",
      "Maximum amount by which a score may be below --baseline; 0.01 is one question in a hundred.",
      {.range = {0, 1}});
}

void AddRecipeRows(std::vector<Option>& table) {
  Rows rows(table, "Recipes", kRecipe);
  rows.List("accelerator", "",
            "Accelerators for which memory and speed are estimated (H200, GB10, ...); default: "
            "those named in the recipe, else all known ones.");
  rows.Flag("lint-json", "Print one JSON object instead of text.", {.flag = "json"});
  rows.Flag("lint-strict", "Also exit with code 1 if there are only warnings.", {.flag = "strict"});
}

}  // namespace

void AddEvalRows(std::vector<Option>& table) {
  AddAccuracyRows(table);
  AddRecipeRows(table);
}

}  // namespace sluice::options
