// The most common options, shown on the first page of a command's help.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "options/help.h"

namespace sluice::options {
namespace {

// A line of the page. Without a name, it is a section title.
struct CommonOption {
  std::string_view name;   // name in the table of options
  std::string_view value;  // "PORT"; "" for a flag
  std::string_view text;
};

constexpr CommonOption kServeOptions[] = {
    {"", "", "Model"},
    {"served-model-name", "NAME...", "model names in requests"},
    {"revision", "NAME", "branch, tag or commit of a model id"},
    {"download-dir", "FOLDER", "where models are downloaded to"},
    {"dtype", "TYPE", "bfloat16, float16 or float32"},
    {"quantization", "FORMAT", "quantize the weights while they are loaded"},
    {"chat-template", "FILE", "instead of the model's own"},
    {"models", "FILE", "several models, loaded on request"},
    {"", "", "Address and access"},
    {"host", "ADDRESS", "0.0.0.0 accepts other machines"},
    {"port", "PORT", "0: any free port"},
    {"uds", "FILE", "a unix socket instead of host and port"},
    {"api-key", "KEY...", "clients must send one of these keys"},
    {"api-key-file", "FILE", "file of keys, one per line"},
    {"ssl-certfile", "FILE", "certificate (PEM): the server speaks HTTPS"},
    {"ssl-keyfile", "FILE", "its key"},
    {"", "", "Size and speed"},
    {"max-model-len", "TOKENS", "maximum tokens of prompt and answer"},
    {"max-num-seqs", "COUNT", "maximum concurrent answers"},
    {"kv-cache-memory-bytes", "SIZE", "such as 4GiB; see also sluice inspect"},
    {"gpu-memory-utilization", "SHARE", "share of memory, for model and cache"},
    {"kv-cache-dtype", "TYPE", "fp8 stores twice as many tokens"},
    {"threads", "COUNT", "compute threads; 0: all cores"},
    {"device", "NAME", "auto, cpu or cuda"},
    {"tensor-parallel-size", "COUNT", "devices that share each layer"},
    {"speculative-config", "JSON", "speculative decoding"},
    {"", "", "Answers"},
    {"tool-call-parser", "NAME", "format of the model's tool calls, or auto"},
    {"enable-auto-tool-choice", "", "let the model decide whether to call tools"},
    {"reasoning-parser", "NAME", "format of the model's reasoning, or auto"},
    {"lora-modules", "NAME=PATH", "adapters to serve; needs --enable-lora"},
    {"", "", "Running it"},
    {"config", "FILE", "YAML file of options"},
    {"check", "", "check the options and the model, and exit"},
    {"drain-delay", "SECONDS", "keep serving after SIGTERM, for proxies"},
    {"log-level", "LEVEL", "lowest level that is logged"},
    {"log-format", "FORMAT", "text or json"},
};

constexpr CommonOption kChatOptions[] = {
    {"", "", "Running server, instead of a model"},
    {"url", "URL", "http://host:port, https:// or unix:///file"},
    {"model", "NAME", "model's name on that server"},
    {"api-key", "KEY", "or OPENAI_API_KEY"},
    {"client-key-file", "FILE", "file of the key"},
    {"cacert", "FILE", "certificates to trust with https"},
    {"insecure", "", "accept any certificate"},
    {"", "", "Answers"},
    {"quick", "TEXT", "send only this message and exit"},
    {"system-prompt", "TEXT", "system message"},
    {"max-tokens", "COUNT", "longest answer"},
    {"temperature", "NUMBER", "0 for the most likely tokens"},
    {"top-p", "NUMBER", "nucleus sampling"},
    {"request-seed", "NUMBER", "makes answers reproducible"},
    {"chat-stats", "", "show tokens per second after each answer"},
    {"chat-markdown", "", "render the Markdown of answers"},
    {"chat-tools", "FILE", "tools the model may call"},
    {"", "", "A model in this process"},
    {"max-model-len", "TOKENS", "longest conversation"},
    {"kv-cache-memory-bytes", "SIZE", "such as 4GiB"},
    {"threads", "COUNT", "compute threads; 0: all cores"},
};

constexpr CommonOption kBenchOptions[] = {
    {"", "", "Server under load"},
    {"base-url", "URL", "http://host:port, https:// or unix:///file"},
    {"bench-model", "NAME", "default: the first that the server lists"},
    {"bench-tokenizer", "FOLDER", "default: the model's, else the server's"},
    {"bench-backend", "API", "openai or openai-chat"},
    {"api-key", "KEY", "or OPENAI_API_KEY"},
    {"client-key-file", "FILE", "file of the key"},
    {"", "", "Load"},
    {"bench-num-prompts", "COUNT", "requests"},
    {"max-concurrency", "COUNT", "most at the same time"},
    {"request-rate", "NUMBER", "requests per second"},
    {"dataset-name", "NAME", "random, sharegpt, custom, sonnet, ..."},
    {"dataset-path", "FILE", "file of the data set"},
    {"bench-input-len", "TOKENS", "of each prompt"},
    {"bench-output-len", "TOKENS", "of each answer"},
    {"ignore-eos", "", "generate each answer to its full length"},
    {"num-warmups", "COUNT", "warm-up requests"},
    {"bench-seed", "NUMBER", "of prompts and arrivals"},
    {"", "", "Result"},
    {"metric-percentiles", "LIST", "such as 50,90,99"},
    {"goodput", "NAME:MS...", "limits for good requests: ttft:200 tpot:50"},
    {"save-result", "", "write a JSON file"},
    {"result-dir", "FOLDER", "of the file"},
    {"result-filename", "FILE", "its name"},
};

std::span<const CommonOption> CommonOptionsOf(Commands command) {
  if ((command & kServe) != 0) return kServeOptions;
  if ((command & (kRun | kChat | kComplete)) != 0) return kChatOptions;
  if ((command & kBenchServe) != 0) return kBenchOptions;
  return {};
}

}  // namespace

std::string CommonOptionHelp(Commands command) {
  constexpr size_t kFlagColumns = 34;
  std::string result;
  for (const CommonOption& row : CommonOptionsOf(command)) {
    if (row.name.empty()) {
      result += fmt::format("\n{}:\n", row.text);
      continue;
    }
    const Option& option = Find(row.name);
    if ((option.commands & command) == 0) continue;
    std::string line = fmt::format("  --{} {}", FlagName(option), row.value);
    line.resize(std::max(line.size() + 1, kFlagColumns), ' ');
    line += row.text;
    if (!option.default_value.empty() && option.type != Type::kFlag)
      line += fmt::format(" [{}]", option.default_value);
    result += line + "\n";
  }
  return result;
}

}  // namespace sluice::options
