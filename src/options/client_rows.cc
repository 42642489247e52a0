#include "options/rows.h"

namespace sluice::options {
namespace {

// Options for reaching a running server. All commands that connect to a server share these rows,
// except `bench` and `eval`: their rows for the address are named as in vLLM and lm_eval.
void AddRemoteRows(std::vector<Option>& table) {
  Rows rows(table, "Server to talk to", kRemote);
  rows.Text("url", "",
            "Address of the server: http://host:port, https://host:port or unix:///file; a path "
            "such as /v1 may follow. Default if no model is given: http://127.0.0.1:8000.",
            {.commands = kClients | kRunBatch | kServed | kReplay, .aliases = "--base-url"});
  rows.Text("cacert", "",
            "With https: file with trusted certificates (PEM); default: SSL_CERT_FILE, else the "
            "system's certificates.",
            {.value = ValueKind::kFile});
  rows.Flag("insecure", "With https: accept any certificate.");
  rows.Text("client-cert", "", "With https: file with the client certificate (PEM).",
            {.flag = "cert", .value = ValueKind::kFile});
  rows.Text("client-key", "",
            "File with the private key for --cert (PEM, without a passphrase); default: the key is "
            "in --cert.",
            {.flag = "key", .value = ValueKind::kFile});
  rows.Text("client-key-file", "",
            "File with the API key to send, on the first line that is not blank and does not begin "
            "with #. Overrides --api-key and OPENAI_API_KEY.",
            {.flag = "api-key-file", .value = ValueKind::kFile});
}

void AddRequestRows(std::vector<Option>& table) {
  Rows rows(table, "Client", kClients);
  rows.Text("model-name", "",
            "With --url: model name in requests, like --model; default: the first model that the "
            "server lists.");
  rows.Text("quick", "", "Send this single message, print the answer and exit.",
            {.aliases = "-q|--prompt"});
  rows.Text("system-prompt", "", "First message of the conversation, with the role system.",
            {.commands = kChat});
  rows.Text("chat-tools", "",
            "JSON file with a list of tools that the model may call, as in a chat request; calls "
            "are shown, not executed.",
            {.commands = kChat, .flag = "tools", .value = ValueKind::kFile});
  rows.Flag("chat-stats",
            "After each answer, show its number of tokens, tokens per second and the cached share "
            "of the prompt; /stats toggles this.",
            {.commands = kChat, .flag = "stats"});
  rows.Flag("chat-markdown",
            "Render Markdown in streamed answers on a terminal; /markdown toggles this.",
            {.commands = kChat, .flag = "markdown"});
  rows.Text("history-file", "",
            "File that stores the input history of a terminal, or none; default: "
            "sluice/chat_history in XDG_STATE_HOME, else in ~/.local/state.",
            {.commands = kChat, .value = ValueKind::kFile});
  rows.Integer("max-tokens", "",
               "Maximum number of tokens of an answer; default: the server's own default.",
               {.range = {1, 1e9}});
  rows.Number("temperature", "",
              "Sampling temperature, 0 for greedy; default: the server's own default.",
              {.range = {0, 2}});
  rows.Number("top-p", "",
              "Probability mass of nucleus sampling; default: the server's own default.",
              {.range = {0, 1}});
  rows.Integer("request-seed", "", "Seed, which makes answers reproducible.");
}

void AddMeasuringRows(std::vector<Option>& table) {
  Rows rows(table, "Measuring", kBench);
  rows.Integer("input-len", "32", "Tokens of each prompt.",
               {.range = {1, 1e7}, .aliases = "--random-input-len"});
  rows.Integer("output-len", "128", "Number of tokens of each answer.",
               {.range = {1, 1e7}, .aliases = "--random-output-len"});
  rows.Integer("batch-size", "8", "Number of prompts that start together.",
               {.commands = kBenchLatency, .range = {1, 65536}});
  rows.Integer("num-iters", "3", "Number of measured repetitions.",
               {.commands = kBenchLatency, .vllm_default = "30", .range = {1, 1e6}});
  rows.Integer("num-iters-warmup", "1", "Number of warm-up repetitions before the measured ones.",
               {.commands = kBenchLatency, .vllm_default = "10", .range = {0, 1e6}});
  rows.Integer("num-prompts", "64", "Number of prompts; all are queued at the start.",
               {.commands = kBenchThroughput, .vllm_default = "1000", .range = {1, 1e7}});
  rows.Flag("limits",
            "First measure this machine's read bandwidth and peak arithmetic rate, and print the "
            "resulting bound next to each result.",
            {.default_value = "true", .vllm_default = "false"});
  rows.Text("output-json", "", "Write the results to this file, in vLLM's format.",
            {.value = ValueKind::kFile});
  rows.Integer("local-num-warmups", "0", "Number of warm-up prompts before the measured ones.",
               {.commands = kBenchThroughput, .flag = "num-warmups", .range = {0, 1e6}});
}

void AddBatchRows(std::vector<Option>& table) {
  Rows rows(table, "Batch file", kRunBatch);
  rows.Text("input-file", "",
            "File of requests in the format of OpenAI's batch API, one JSON object per line: "
            "custom_id, method, url, body.",
            {.aliases = "-i", .value = ValueKind::kFile});
  rows.Text("output-file", "", "File of answers, in the order of the requests.",
            {.aliases = "-o", .value = ValueKind::kFile});
}

void AddOutputRows(std::vector<Option>& table) {
  Rows rows(table, "Output", kRender);
  rows.Flag("json", "Print one JSON object instead of text.",
            {.commands = kBench | kInspect | kDoctor | kVersion | kExplainOptions | kListModels |
                         kServed | kPlan});
  rows.Flag("yes", "Remove without asking for confirmation, for scripts.",
            {.commands = kRemove, .aliases = "-y"});
  rows.Choice("dialect", "all", "all|sluice|vllm|trtllm", "Program whose options are explained.",
              {.commands = kExplainOptions});
  rows.Flag("decode",
            "Read {\"ids\": [...], \"skip_special_tokens\": bool} and write {\"text\": ...} "
            "instead of the reverse.",
            {.commands = kTokenize});
  rows.Text("template", "", "File of the template; default: that of --model.",
            {.value = ValueKind::kFile});
  rows.Text("parse-tool-parser", "", "Parser of tool calls, by vLLM's name.",
            {.commands = kParse, .flag = "tool-parser"});
  rows.Text("parse-reasoning-parser", "", "Parser of reasoning, by vLLM's name.",
            {.commands = kParse, .flag = "reasoning-parser"});
  rows.Text(
      "parse-tools", "",
      "JSON file with the list of tools, as in a chat request, for input lines without tools.",
      {.commands = kParse, .flag = "tools", .value = ValueKind::kFile});
  rows.Text("now", "",
            "Current time in templates, such as 2025-07-26T12:34:56; default: the actual time.");
}

}  // namespace

void AddClientRows(std::vector<Option>& table) {
  AddRemoteRows(table);
  AddRequestRows(table);
  AddMeasuringRows(table);
  AddBatchRows(table);
  AddOutputRows(table);
}

}  // namespace sluice::options
