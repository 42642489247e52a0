#include "cli/usage.h"

#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "cli/exit_code.h"
#include "cli/version.h"
#include "hub/resolve.h"
#include "options/suggest.h"

namespace sluice::cli {
namespace {

using options::Dialect;

// vLLM ends with 2 only where its parser fails, and with 1 for all else.
constexpr int kVllmFailure = 1;
constexpr std::string_view kVllmRelease = "0.32.0";

void PrintVllmUsage() {
  fmt::print(stderr,
             "usage: vllm [-h] [-v]\n"
             "            {{chat,complete,serve,bench,collect-env,run-batch}}\n"
             "            ...\n");
}

// "hint" after the first line of a message goes before it: the error itself is the last line.
std::string TakeHint(std::string& message) {
  const size_t end = message.find('\n');
  if (end == std::string::npos) return "";
  std::string hint = message.substr(end + 1);
  message.resize(end);
  return hint;
}

int ReportVllmUsage(const Command& command, const Error& error) {
  std::string message = error.message;
  const std::string hint = TakeHint(message);
  // A number that reads well and cannot be is found by vLLM only when it uses it.
  if (error.code == ErrorCode::kUnsupported) {
    fmt::print(stderr, "error: {}\n", message);
    if (error.param == "--port")
      fmt::print(stderr, "OverflowError: bind(): port must be 0-65535.\n");
    return kVllmFailure;
  }
  const bool top = message.starts_with("unrecognized arguments");
  if (top) {
    PrintVllmUsage();
  } else {
    fmt::print(stderr, "usage: vllm {} {}\n", command.name,
               command.bit == options::kServe ? "[model_tag] [options]" : "[options]");
  }
  if (!hint.empty()) fmt::print(stderr, "hint: {}\n", hint);
  fmt::print(stderr, "vllm{}: error: {}\n", top ? "" : " " + std::string(command.name), message);
  return kExitUsage;
}

// What vLLM says of a --max-model-len that the model does not have.
std::string TooLong(const std::string& message) {
  long long wanted = 0;
  long long most = 0;
  const bool larger =
      std::sscanf(message.c_str(),
                  "max_model_len (%lld) is larger than max_position_embeddings (%lld)", &wanted,
                  &most) == 2;
  const std::string reason =
      larger ? fmt::format(
                   "User-specified max_model_len ({}) is greater than the derived "
                   "max_model_len (max_position_embeddings={} in model's config.json).",
                   wanted, most)
             : message;
  return "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
         "  Value error, " +
         reason;
}

// The line by which vLLM's users know a failure; "" where it is like no failure of vLLM's.
std::string VllmLine(const options::Settings& settings, const Error& error) {
  if (error.code == ErrorCode::kAddressInUse) return "OSError: [Errno 98] Address already in use";
  if (error.param == "max_model_len" && error.code == ErrorCode::kInvalidArgument)
    return TooLong(error.message);
  if (error.param == "quantization")
    return fmt::format(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, {}",
        error.message);
  if (error.param == "enable-auto-tool-choice")
    return "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser";
  const std::string model =
      settings.positionals().empty() ? settings.TextOr("model") : settings.positionals()[0];
  const bool missing = error.code == ErrorCode::kUnavailable ||
                       error.code == ErrorCode::kNotFound ||
                       error.code == ErrorCode::kInvalidArgument;
  if (missing && !model.empty() && !IsHubId(model) &&
      error.message.find(model) != std::string::npos)
    return fmt::format(
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '{}'. Use `repo_type` argument if needed.",
        model);
  return "";
}

// What a damaged file holds must neither move the cursor nor fill the terminal.
std::string Printable(std::string_view message) {
  constexpr size_t kLongest = 8000;
  std::string text;
  for (const char c : message.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  if (message.size() > kLongest) text += "...";
  return text;
}

}  // namespace

std::string VersionIn(Dialect dialect) {
  if (dialect == Dialect::kVllm) return fmt::format("{}+sluice.{}", kVllmRelease, Version());
  return Version();
}

int ReportUnknownCommand(Dialect dialect, const std::vector<std::string>& words) {
  std::vector<std::string> known = {"help"};
  for (const Command& command : Commands()) known.emplace_back(command.name);
  const std::string word =
      words[0] == "bench" && words.size() > 1 ? words[0] + " " + words[1] : words[0];
  if (dialect == Dialect::kVllm) {
    PrintVllmUsage();
    constexpr std::string_view kNotHere[] = {"launch", "download-kernels", "preload", "snapshot"};
    for (const std::string_view name : kNotHere) {
      if (word != name) continue;
      fmt::print(stderr,
                 "vllm: error: 'vllm {}' prepares parts of vLLM that are not here; `vllm serve` "
                 "needs no preparation\n",
                 name);
      return kExitUsage;
    }
    if (words[0] == "bench") {
      fmt::print(stderr,
                 "vllm bench: error: argument bench_type: invalid choice: '{}' (choose from "
                 "'latency', 'serve', 'sweep', 'throughput')\n",
                 words[1]);
      return kExitUsage;
    }
    fmt::print(stderr,
               "vllm: error: argument subparser: invalid choice: '{}' (choose from 'chat', "
               "'complete', 'serve', 'launch', 'bench', 'collect-env', 'download-kernels', "
               "'preload', 'run-batch', 'snapshot')\n",
               word);
    return kExitUsage;
  }
  fmt::print(stderr, "error: unknown command '{}'{}\n`sluice help` lists the commands.\n", word,
             options::DidYouMean(word, known));
  return kExitUsage;
}

int ReportUsage(Dialect dialect, const Command& command, const Error& error) {
  switch (dialect) {
    case Dialect::kVllm: return ReportVllmUsage(command, error);
    case Dialect::kTrtllm:
      fmt::print(stderr,
                 "Usage: trtllm-serve {0} [OPTIONS] {1}\n"
                 "Try 'trtllm-serve {0} --help' for help.\n\nError: {2}\n",
                 command.name, command.bit == options::kServe ? "MODEL" : "", error.message);
      return ExitCode(error.code);
    case Dialect::kSluice: break;
  }
  fmt::print(stderr, "error: {}\n`sluice help {}` lists the options.\n", Printable(error.message),
             command.name);
  return ExitCode(error.code);
}

int ReportFailure(const options::Settings& settings, const Error& error) {
  fmt::print(stderr, "error: {}\n", Printable(error.message));
  if (settings.dialect() != Dialect::kVllm) return ExitCode(error.code);
  if (const std::string line = VllmLine(settings, error); !line.empty())
    fmt::print(stderr, "{}\n", line);
  return error.code == ErrorCode::kCancelled ? ExitCode(error.code) : kVllmFailure;
}

}  // namespace sluice::cli
