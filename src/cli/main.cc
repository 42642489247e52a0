#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "base/log_format.h"
#include "cli/check_settings.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/launch_nodes.h"
#include "cli/reload.h"
#include "cli/signals.h"
#include "cli/startup_lines.h"
#include "cli/usage.h"
#include "options/sources.h"

namespace sluice::cli {
namespace {

using options::Dialect;

Dialect DialectOf(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename();
  if (name == "vllm") return Dialect::kVllm;
  if (name == "trtllm-serve") return Dialect::kTrtllm;
  return Dialect::kSluice;
}

// Removes the command, of one or two words, from the front of `words`; null if there is none.
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

// Logs the options that have no effect; `serve` has a block of lines for that.
void LogWithoutEffect(const options::Settings& settings) {
  for (const std::string& line : UnusedDevices(settings)) LOG_WARNING("options", "{}", line);
  for (const options::Assignment* given : settings.given()) {
    if (given->option->effect == options::Effect::kNoEffect)
      LOG_INFO("options", "{} has no effect: {}", given->origin, given->option->reason);
  }
}

int RunCommand(const Command& command, const std::vector<std::string>& words, Dialect dialect) {
  // A server that is told to reload while it reads its options must not end of it. Other commands
  // end with their terminal.
  if (command.bit == options::kServe) BlockSignals({SIGHUP});
  auto resolved = options::Resolve(words, options::ProcessEnvironment(), command.bit, dialect);
  if (!resolved) return ReportUsage(dialect, command, resolved.error());
  if (resolved->help) {
    fmt::print("{}", CommandHelp(command, *resolved->help));
    return 0;
  }
  const options::Settings& settings = resolved->settings;
  if (settings.positionals().size() > static_cast<size_t>(command.max_positionals)) {
    const std::string& extra = settings.positionals()[static_cast<size_t>(command.max_positionals)];
    const std::string message = fmt::format("unrecognized arguments: {}", extra);
    return ReportUsage(dialect, command, Error{ErrorCode::kInvalidArgument, message, ""});
  }
  UseLogLevelOf(settings);
  if (settings.TextOr("log-format") == "json") SetLogFormat(LogFormat::kJson);
  if (const Status status = CheckSettings(settings); !status)
    return ReportFailure(settings, status.error());
  if (command.bit != options::kServe) LogWithoutEffect(settings);
  Result<int> code = command.run(settings);
  // Output that could not be written is a failure, except of a server, whose output is a log.
  if (code && command.bit != options::kServe &&
      (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    code = Fail(ErrorCode::kInternal, fmt::format("standard output: {}", std::strerror(errno)));
  }
  return code ? *code : ReportFailure(settings, code.error());
}

int ReportTrtllmCommand(const std::string& word) {
  fmt::print(stderr,
             "Error: 'trtllm-serve {}' runs parts of one model in several servers, which is not "
             "supported; `trtllm-serve MODEL` serves a model by itself\n",
             word);
  return kExitUsage;
}

// `bench` alone lists what it can do.
void PrintBenches() {
  for (const Command& command : Commands()) {
    if (command.name.starts_with("bench "))
      fmt::print("  {:<48} {}\n", fmt::format("{} {}", command.name, command.arguments),
                 command.summary);
  }
}

bool IsHelp(const std::string& word) {
  return word == "help" || word == "--help" || word == "-h";
}

int RunArguments(const std::vector<std::string>& arguments) {
  const Dialect dialect = DialectOf(arguments.empty() ? "sluice" : arguments[0]);
  std::vector<std::string> words(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (words.empty()) {
    fmt::print("{}", dialect == Dialect::kSluice ? ShortHelp() : LongHelp());
    return 0;
  }
  if (words[0] == kLaunchAgent) return RunLaunchAgent(words);
  if (words[0] == kLaunchDaemon) return RunLaunchDaemon(words);
  if (IsHelp(words[0])) {
    const Result<int> code = RunHelp({words.begin() + 1, words.end()});
    return code ? *code : ReportFailure(options::Settings({}, {}, dialect), code.error());
  }
  const bool version = words[0] == "--version" || words[0] == "-v";
  if (version && dialect != Dialect::kSluice) {
    fmt::print("{}\n", VersionIn(dialect));
    return 0;
  }
  if (version) words[0] = "version";

  if (dialect == Dialect::kTrtllm) {
    constexpr std::string_view kOthers[] = {"mm_embedding_serve", "disaggregated",
                                            "disaggregated_mpi_worker", "grpc"};
    if (std::find(std::begin(kOthers), std::end(kOthers), words[0]) != std::end(kOthers))
      return ReportTrtllmCommand(words[0]);
  }
  if (words[0] == "bench" && (words.size() == 1 || IsHelp(words[1]))) {
    PrintBenches();
    return 0;
  }
  const Command* command = TakeCommand(words);
  // `trtllm-serve MODEL` is `trtllm-serve serve MODEL`.
  if (command == nullptr && dialect == Dialect::kTrtllm) command = FindCommand("serve");
  if (command == nullptr) return ReportUnknownCommand(dialect, words);
  return RunCommand(*command, words, dialect);
}

}  // namespace

int Main(const std::vector<std::string>& arguments) {
  try {
    return RunArguments(arguments);
  } catch (const std::system_error& problem) {  // fmt::print on a full disk; no more threads
    fmt::print(stderr, "error: {}\n", problem.what());
    return ExitCode(ErrorCode::kInternal);
  } catch (const std::bad_alloc&) {  // before or beside what the memory plan counts
    std::fputs(
        "error: the system refuses memory to this process: raise its limit (ulimit -v, or its "
        "control group)\n",
        stderr);
    return ExitCode(ErrorCode::kResourceExhausted);
  }
}

}  // namespace sluice::cli
