#include "cli/command.h"

namespace sluice::cli {

std::span<const Command> Commands() {
  static constexpr Command kCommands[] = {
      {"serve", "MODEL [options]", "answer the OpenAI API for a checkpoint", options::kServe,
       RunServe, 1},
      {"chat", "[MODEL] [options]", "talk to a running server, or to a model started here",
       options::kChat, RunChat, 1},
      {"complete", "[MODEL] [options]",
       "continue texts by a running server, or by a model started here", options::kComplete,
       RunComplete, 1},
      {"inspect", "MODEL [options]",
       "say what a checkpoint is and what it takes, without loading it", options::kInspect,
       RunInspect, 1},
      {"doctor", "[options]", "say what this machine can do and what limits it", options::kDoctor,
       RunDoctor, 0},
      {"bench serve", "[options]", "put load on a running server and time its answers",
       options::kBenchServe, RunBenchServe, 0},
      {"bench sweep", "[options]",
       "do that at rising concurrency, and draw throughput against speed", options::kBenchSweep,
       RunBenchSweep, 0},
      {"bench latency", "MODEL [options]", "time a batch of prompts that start together",
       options::kBenchLatency, RunBenchLatency, 1},
      {"bench throughput", "MODEL [options]", "time many prompts that wait from the start",
       options::kBenchThroughput, RunBenchThroughput, 1},
      {"eval", "FILE.jsonl [--base-url URL | --model MODEL]",
       "ask questions with known answers and print the score", options::kEval, RunEval, 1},
      {"quantize", "MODEL FOLDER --to LAYOUT",
       "write a quantized copy of a checkpoint in a published layout", options::kQuantize,
       RunQuantize, 2},
      {"diff", "MODEL MODEL [--text FILE]",
       "say how far a checkpoint's weights and predictions are from another's", options::kDiff,
       RunDiff, 2},
      {"run-batch", "-i FILE -o FILE --model MODEL",
       "answer the requests of a file, as OpenAI's batch API does", options::kRunBatch, RunBatch,
       1},
      {"recipe lint", "FILE", "say what a recipe's commands do here and what it gets wrong",
       options::kRecipe, RunRecipeLint, 1},
      {"tokenize", "--model MODEL [--decode]", "JSON lines of texts to token ids, or back",
       options::kTokenize, RunTokenizeCommand, 1},
      {"render", "--template FILE | --model MODEL",
       "JSON lines of variables through a chat template", options::kRender, RunRenderCommand, 1},
      {"explain-options", "[WORD] [--dialect vllm]",
       "say what each option, key and variable of the dialects does here", options::kExplainOptions,
       RunExplainOptions, 1},
      {"selftest", "[--device cuda|emulated] [--part NAME]...",
       "hold every operator of a device against the CPU", options::kSelftest, RunSelftest, 0},
      {"kernel-bench", "[--device cuda] [--part NAME]...",
       "time a device's kernels beside what bounds them", options::kKernelBench, RunKernelBench, 0},
      {"collect-env", "", "print what a bug report needs", options::kCollectEnv, RunCollectEnv, 0},
      {"version", "[--json]", "say which build this is", options::kVersion, RunVersion, 0},
  };
  return kCommands;
}

}  // namespace sluice::cli
