#include <algorithm>
#include <string>
#include <utility>

#include "cli/command.h"

namespace sluice::cli {

std::span<const Command> Commands() {
  static constexpr Command kCommands[] = {
      {"serve", "MODEL [options]", "serve a model with the OpenAI API", options::kServe, RunServe,
       1},
      {"run", "MODEL [TEXT] [options]", "serve a model and chat with it", options::kRun, RunAndChat,
       kManyWords},
      {"chat", "[MODEL] [TEXT] [options]", "chat with a running server, or with a model",
       options::kChat, RunChat, kManyWords},
      {"complete", "[MODEL] [TEXT] [options]", "continue texts with a running server, or a model",
       options::kComplete, RunComplete, kManyWords},
      {"ps", "[--url URL] [--json]", "list the models of a running server", options::kServed,
       RunServed, 0},
      {"pull", "MODEL [--revision REVISION]", "download a model, or update it", options::kPull,
       RunPull, 1},
      {"list", "[--json]", "list the downloaded models", options::kListModels, RunList, 0},
      {"rm", "MODEL [--revision REVISION] [--yes]", "remove a downloaded model", options::kRemove,
       RunRemove, 1},
      {"inspect", "MODEL [options]", "describe a model and the memory that it needs",
       options::kInspect, RunInspect, 1},
      {"plan", "MODEL --trace FILE --slo ttft=S,tpot=S [options]",
       "find machines that meet a service level for a trace", options::kPlan, RunPlan, 1},
      {"fit", "FILE... --like DEVICE [options]", "fit a simulated device to measured runs",
       options::kFit, RunFit, 1000},
      {"doctor", "[options]", "report the features and speed of this machine", options::kDoctor,
       RunDoctor, 0},
      {"bench serve", "[options]", "send load to a running server and measure it",
       options::kBenchServe, RunBenchServe, 0},
      {"bench sweep", "[options]", "measure a server at increasing concurrency",
       options::kBenchSweep, RunBenchSweep, 0},
      {"bench latency", "MODEL [options]", "measure a batch of prompts that start together",
       options::kBenchLatency, RunBenchLatency, 1},
      {"bench throughput", "MODEL [options]", "measure many prompts, all queued at the start",
       options::kBenchThroughput, RunBenchThroughput, 1},
      {"eval", "FILE.jsonl [--url URL | --model MODEL]",
       "measure accuracy on questions with known answers", options::kEval, RunEval, 1},
      {"quantize", "MODEL FOLDER --to LAYOUT", "write a quantized copy of a model",
       options::kQuantize, RunQuantize, 2},
      {"diff", "MODEL MODEL [--text FILE]", "compare weights and predictions of two models",
       options::kDiff, RunDiff, 2},
      {"run-batch", "-i FILE -o FILE --model MODEL", "answer a file of requests (batch API)",
       options::kRunBatch, RunBatch, 1},
      {"replay", "FOLDER [FILE] [options]", "compute the steps of a recording again",
       options::kReplay, RunReplay, 2},
      {"verify", "RECEIPT.json --model MODEL [--public-key FILE]",
       "verify a receipt by computing its answer again", options::kVerify, RunVerify, 1},
      {"receipt-key", "FILE", "generate a key pair for `serve --receipts`", options::kReceiptKey,
       RunReceiptKey, 1},
      {"shadow", "MODEL --upstream URL [options]",
       "forward to another server and compare its answers", options::kShadow, RunShadow, 1},
      {"recipe lint", "FILE", "check a recipe's commands and show their effect", options::kRecipe,
       RunRecipeLint, 1},
      {"tokenize", "--model MODEL [--decode]", "convert texts to token ids, or back",
       options::kTokenize, RunTokenizeCommand, 1},
      {"render", "--template FILE | --model MODEL", "render a chat template", options::kRender,
       RunRenderCommand, 1},
      {"parse", "[--tool-parser NAME] [--reasoning-parser NAME] [--tools FILE]",
       "split answers into reasoning, content, tool calls", options::kParse, RunParseCommand, 0},
      {"explain-options", "[WORD] [--dialect vllm]", "show the effect of other programs' options",
       options::kExplainOptions, RunExplainOptions, 1},
      {"selftest", "[--device cuda|hip|emulated] [--part NAME]...",
       "check every operator of a device against the CPU", options::kSelftest, RunSelftest, 0},
      {"kernel-bench", "[--device cuda|hip] [--part NAME]...", "measure a device's kernels",
       options::kKernelBench, RunKernelBench, 0},
      {"collect-env", "", "print the information for a bug report", options::kCollectEnv,
       RunCollectEnv, 0},
      {"completion", "bash|zsh|fish", "write the completion script of a shell",
       options::kCompletion, RunCompletion, 1},
      {"version", "[--json]", "print the version of this build", options::kVersion, RunVersion, 0},
  };
  return kCommands;
}

std::string_view SynonymOf(std::string_view word) {
  static constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
      {"ls", "list"},           {"models", "list"},       {"download", "pull"}, {"fetch", "pull"},
      {"get", "pull"},          {"remove", "rm"},         {"delete", "rm"},     {"show", "inspect"},
      {"info", "inspect"},      {"status", "ps"},         {"start", "serve"},   {"server", "serve"},
      {"convert", "quantize"},  {"quantise", "quantize"}, {"evaluate", "eval"}, {"talk", "chat"},
      {"generate", "complete"}, {"batch", "run-batch"},   {"compare", "diff"},
  };
  const auto* found = std::find_if(std::begin(kSynonyms), std::end(kSynonyms),
                                   [&](const auto& pair) { return pair.first == word; });
  return found == std::end(kSynonyms) ? std::string_view() : found->second;
}

std::vector<std::string> SuggestedCommands() {
  std::vector<std::string> names = {"help"};
  for (const Command& command : Commands()) {
    if (command.bit != options::kRemove) names.emplace_back(command.name);
  }
  return names;
}

}  // namespace sluice::cli
