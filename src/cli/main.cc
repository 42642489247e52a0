#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "options/sources.h"
#include "options/suggest.h"

namespace sluice::cli {
namespace {

using options::Dialect;

Dialect DialectOf(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename();
  if (name == "vllm") return Dialect::kVllm;
  if (name == "trtllm-serve") return Dialect::kTrtllm;
  return Dialect::kSluice;
}

LogLevel LevelOf(const std::string& word) {
  if (word == "trace") return LogLevel::kTrace;
  if (word == "debug") return LogLevel::kDebug;
  if (word == "warning") return LogLevel::kWarning;
  if (word == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

int Report(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  return ExitCode(error.code);
}

// The command that begins the words, which lose it; names have one or two words.
const Command* TakeCommand(std::vector<std::string>& words) {
  for (const Command& command : Commands()) {
    const auto parts = std::count(command.name.begin(), command.name.end(), ' ') + 1;
    if (static_cast<long>(words.size()) < parts) continue;
    const std::string start = parts == 2 ? words[0] + " " + words[1] : words[0];
    if (start != command.name) continue;
    words.erase(words.begin(), words.begin() + parts);
    return &command;
  }
  return nullptr;
}

const Command* FindCommand(std::string_view name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

int UnknownCommand(const std::vector<std::string>& words) {
  std::vector<std::string> known = {"help"};
  for (const Command& command : Commands()) known.emplace_back(command.name);
  const std::string word =
      words[0] == "bench" && words.size() > 1 ? words[0] + " " + words[1] : words[0];
  fmt::print(stderr, "error: unknown command '{}'{}\n`sluice help` lists the commands.\n", word,
             options::DidYouMean(word, known));
  return kExitUsage;
}

// Says once what was taken without effect.
void SayWithoutEffect(const options::Settings& settings) {
  for (const options::Assignment* given : settings.given()) {
    if (!given->option->no_effect.empty()) {
      LOG_INFO("options", "{} has no effect: {}", given->origin, given->option->no_effect);
    }
  }
}

int RunCommand(const Command& command, const std::vector<std::string>& words, Dialect dialect) {
  auto resolved = options::Resolve(words, options::ProcessEnvironment(), command.bit, dialect);
  if (!resolved) {
    fmt::print(stderr, "error: {}\n`sluice help {}` lists the options.\n", resolved.error().message,
               command.name);
    return ExitCode(resolved.error().code);
  }
  if (resolved->help) {
    fmt::print("{}", CommandHelp(command, *resolved->help));
    return 0;
  }
  const options::Settings& settings = resolved->settings;
  if (settings.positionals().size() > static_cast<size_t>(command.max_positionals)) {
    fmt::print(stderr, "error: sluice {} takes {}, '{}' is one word too many\n", command.name,
               command.arguments,
               settings.positionals()[static_cast<size_t>(command.max_positionals)]);
    return kExitUsage;
  }
  SetLogLevel(LevelOf(settings.TextOr("log-level")));
  SayWithoutEffect(settings);
  const Result<int> code = command.run(settings);
  return code ? *code : Report(code.error());
}

}  // namespace

int Main(const std::vector<std::string>& arguments) {
  const Dialect dialect = DialectOf(arguments.empty() ? "sluice" : arguments[0]);
  std::vector<std::string> words(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (words.empty()) {
    fmt::print("{}", ShortHelp());
    return 0;
  }
  if (words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    const Result<int> code = RunHelp({words.begin() + 1, words.end()});
    return code ? *code : Report(code.error());
  }
  if (words[0] == "--version" || words[0] == "-v") words[0] = "version";

  const Command* command = TakeCommand(words);
  if (command == nullptr && dialect == Dialect::kTrtllm) command = FindCommand("serve");
  if (command == nullptr) return UnknownCommand(words);
  return RunCommand(*command, words, dialect);
}

}  // namespace sluice::cli
