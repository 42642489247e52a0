#include "options/rows.h"

namespace sluice::options {
namespace {

constexpr uint32_t kClients = kChat | kComplete;
constexpr uint32_t kBench = kBenchLatency | kBenchThroughput;

std::vector<Option> TalkRows() {
  constexpr std::string_view kGroup = "Talking to a server";
  return {
      {.name = "url",
       .group = kGroup,
       .commands = kClients,
       .help = "Server to talk to, as http://host:port (a path such as /v1 may follow); without it "
               "and without a model: "
               "http://127.0.0.1:8000."},
      {.name = "model-name",
       .group = kGroup,
       .commands = kClients,
       .help = "Name of the model to ask for; default: the first that the server lists."},
      {.name = "quick",
       .group = kGroup,
       .commands = kClients,
       .help = "Send this one message, print the answer and exit.",
       .aliases = "-q|--prompt"},
      {.name = "system-prompt",
       .group = kGroup,
       .commands = kChat,
       .help = "First message of the conversation, with the role system."},
      {.name = "max-tokens",
       .type = Type::kInteger,
       .group = kGroup,
       .commands = kClients,
       .help = "Most tokens of an answer; default: the server's.",
       .range = {1, 1e9}},
      {.name = "temperature",
       .type = Type::kNumber,
       .group = kGroup,
       .commands = kClients,
       .help = "Sampling temperature, 0 for greedy; default: the server's.",
       .range = {0, 2}},
      {.name = "top-p",
       .type = Type::kNumber,
       .group = kGroup,
       .commands = kClients,
       .help = "Nucleus sampling; default: the server's.",
       .range = {0, 1}},
      {.name = "request-seed",
       .type = Type::kInteger,
       .group = kGroup,
       .commands = kClients,
       .help = "Seed of the answers, so that they can be repeated."},
  };
}

std::vector<Option> BenchRows() {
  constexpr std::string_view kGroup = "Measuring";
  return {
      {.name = "input-len",
       .type = Type::kInteger,
       .default_value = "32",
       .group = kGroup,
       .commands = kBench,
       .help = "Tokens of each prompt.",
       .range = {1, 1e7},
       .aliases = "--random-input-len"},
      {.name = "output-len",
       .type = Type::kInteger,
       .default_value = "128",
       .group = kGroup,
       .commands = kBench,
       .help = "Tokens of each answer.",
       .range = {1, 1e7},
       .aliases = "--random-output-len"},
      {.name = "batch-size",
       .type = Type::kInteger,
       .default_value = "8",
       .group = kGroup,
       .commands = kBenchLatency,
       .help = "Prompts that start together.",
       .range = {1, 65536}},
      {.name = "num-iters",
       .type = Type::kInteger,
       .default_value = "3",
       .group = kGroup,
       .commands = kBenchLatency,
       .help = "Repetitions that are measured.",
       .vllm_default = "30",
       .range = {1, 1000000}},
      {.name = "num-iters-warmup",
       .type = Type::kInteger,
       .default_value = "1",
       .group = kGroup,
       .commands = kBenchLatency,
       .help = "Repetitions before those.",
       .vllm_default = "10",
       .range = {0, 1000000}},
      {.name = "num-prompts",
       .type = Type::kInteger,
       .default_value = "64",
       .group = kGroup,
       .commands = kBenchThroughput,
       .help = "Prompts, all of them waiting from the start.",
       .vllm_default = "1000",
       .range = {1, 10000000}},
      {.name = "limits",
       .type = Type::kFlag,
       .default_value = "true",
       .group = kGroup,
       .commands = kBench,
       .help = "Measure this machine's read bandwidth and arithmetic peak first and print the "
               "bound beside each figure.",
       .vllm_default = "false"},
      {.name = "output-json",
       .group = kGroup,
       .commands = kBench,
       .help = "Write the figures to this file, in vLLM's form."},
  };
}

std::vector<Option> BatchRows() {
  constexpr std::string_view kGroup = "Batch file";
  return {
      {.name = "input-file",
       .group = kGroup,
       .commands = kRunBatch,
       .help = "File of requests, one JSON object a line, as OpenAI's batch API takes it: "
               "custom_id, method, url, body.",
       .aliases = "-i"},
      {.name = "output-file",
       .group = kGroup,
       .commands = kRunBatch,
       .help = "File of answers, in the order of the requests.",
       .aliases = "-o"},
      {.name = "output-tmp-dir",
       .group = kGroup,
       .commands = kRunBatch,
       .help = "Folder for an unfinished output file.",
       .no_effect = "answers are written beside the output file and moved there at the end"},
      {.name = "enable-metrics",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kRunBatch,
       .help = "Serve metrics while the batch runs.",
       .no_effect = "a batch tells its figures at its end"},
  };
}

std::vector<Option> ToolRows() {
  constexpr std::string_view kGroup = "Output";
  return {
      {.name = "json",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kInspect | kDoctor | kBench | kVersion | kExplainOptions,
       .help = "Print one JSON object instead of text."},
      {.name = "dialect",
       .type = Type::kChoice,
       .default_value = "all",
       .group = kGroup,
       .commands = kExplainOptions,
       .help = "Whose options to explain.",
       .choices = "all|sluice|vllm|trtllm"},
      {.name = "decode",
       .type = Type::kFlag,
       .default_value = "false",
       .group = kGroup,
       .commands = kTokenize,
       .help = "Read {\"ids\": [...], \"skip_special_tokens\": bool} and write {\"text\": ...} "
               "instead of the other way."},
      {.name = "template",
       .group = kGroup,
       .commands = kRender,
       .help = "File of the template; default: that of --model."},
      {.name = "now",
       .group = kGroup,
       .commands = kRender,
       .help = "Time that templates see, as 2025-07-26T12:34:56; default: the clock."},
  };
}

}  // namespace

std::vector<Option> ClientRows() {
  std::vector<Option> rows = TalkRows();
  for (const auto& part : {BenchRows(), BatchRows(), ToolRows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sluice::options
