#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "base/log_format.h"
#include "base/suggest.h"
#include "base/thread_limit.h"
#include "cli/check_settings.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/launch_nodes.h"
#include "cli/progress.h"
#include "cli/rank_secrets.h"
#include "cli/reload.h"
#include "cli/signals.h"
#include "cli/startup_lines.h"
#include "cli/usage.h"
#include "options/names.h"
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

// Removes the command, one or two words, from the front of `words`. Returns null if there is none.
const Command* TakeCommand(std::vector<std::string>& words) {
  const std::string_view known = SynonymOf(words[0]);
  if (!known.empty()) words[0] = known;
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

// Logs the options that have no effect. `serve` logs them in its own format.
void LogWithoutEffect(const options::Settings& settings) {
  const OptionEffects effects = EffectsOf(settings);
  for (const std::string& line : UnansweredLines(effects)) LOG_WARNING("options", "{}", line);
  for (const auto& [reason, what] : effects.idle)
    LOG_INFO("options", "{}: no effect: {}", fmt::join(what, ", "), reason);
}

// Lists options that were given as abbreviations. If there are unexpected arguments, the user may
// have meant one of them as the value of a different option.
std::string AbbreviationsIn(const options::Settings& settings, const Command& command) {
  const options::Names names(command.bit, settings.dialect());
  std::string text;
  for (const options::Assignment& given : settings.assignments()) {
    if (given.source != options::Source::kFlag) continue;
    const std::string taken = options::TakenFor(given.origin, *given.option);
    if (taken.empty()) continue;
    const std::string flag = options::Fold(given.origin);
    std::vector<std::string> others = names.all();
    std::erase_if(others, [&](const std::string& name) { return name.starts_with(flag); });
    text += fmt::format("; {}{}", taken, DidYouMean(flag, others));
  }
  return text;
}

int RunCommand(const Command& command, const std::vector<std::string>& words, Dialect dialect) {
  // A SIGHUP that asks for a reload must not end a server that is still reading its options. Other
  // commands end with their terminal.
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
    const std::string message =
        fmt::format("unrecognized arguments: {}{}", extra, AbbreviationsIn(settings, command));
    return ReportUsage(dialect, command, Error{ErrorCode::kInvalidArgument, message, ""});
  }
  UseLogLevelOf(settings);
  if (settings.TextOr("log-format") == "json") SetLogFormat(LogFormat::kJson);
  if (const Status status = CheckSettings(settings); !status)
    return ReportFailure(settings, status.error());
  if (command.bit != options::kServe) LogWithoutEffect(settings);
  Result<int> code = command.run(settings);
  return code ? *code : ReportFailure(settings, code.error());
}

int ReportTrtllmCommand(const std::string& word) {
  PrintError(
      fmt::format("Error: 'trtllm-serve {}' runs parts of one model in several servers, which is "
                  "not supported; `trtllm-serve MODEL` serves a model by itself\n",
                  word));
  return kExitUsage;
}

// Whether a first word that is not a command is meant as a model: an existing folder, or a name
// with a slash, as in paths, ids and URLs.
bool MeansModel(const std::string& word) {
  std::error_code ignored;
  return !word.starts_with('-') &&
         (word.find('/') != std::string::npos || std::filesystem::is_directory(word, ignored));
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
  if (const Status taken = TakeRankSecrets(); !taken)
    return ReportFailure(options::Settings({}, {}, dialect), taken.error());
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
  const std::string family = FamilyHelp(words[0]);
  if (!family.empty() && (words.size() == 1 || IsHelp(words[1]))) {
    fmt::print("{}", family);
    return 0;
  }
  const Command* command = TakeCommand(words);
  // `sluice MODEL` means `sluice run MODEL`.
  if (command == nullptr && dialect == Dialect::kSluice && MeansModel(words[0]))
    command = FindCommand("run");
  // `trtllm-serve MODEL` means `trtllm-serve serve MODEL`.
  if (command == nullptr && dialect == Dialect::kTrtllm) command = FindCommand("serve");
  if (command == nullptr) return ReportUnknownCommand(dialect, words);
  return RunCommand(*command, words, dialect);
}

// Returns 0 if standard output was written completely. If the reader has closed it, as `head` does,
// prints no error message; only the exit code shows it.
int EndOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  if (errno != EPIPE) PrintError(fmt::format("error: standard output: {}\n", std::strerror(errno)));
  return ExitCode(ErrorCode::kInternal);
}

int ReportSystemError(const std::system_error& problem) {
  // fmt::print throws an error with this text.
  const bool is_output = std::string_view(problem.what()).starts_with("cannot write");
  if (is_output && problem.code() == std::errc::broken_pipe) return ExitCode(ErrorCode::kInternal);
  std::string text = problem.what();
  if (is_output) {
    text = "standard output: " + problem.code().message();
  } else if (problem.code() == std::errc::resource_unavailable_try_again) {  // thrown by
                                                                             // std::thread
    text = ThreadsRefused("a thread", text, "");
  }
  PrintError(fmt::format("error: {}\n", text));
  return ExitCode(ErrorCode::kInternal);
}

}  // namespace

int Main(const std::vector<std::string>& arguments) {
  OpenStandardDescriptors();
  LetWritesFail();
  try {
    const int code = RunArguments(arguments);
    const int written = EndOutput();
    return code != 0 ? code : written;
  } catch (const std::system_error& problem) {  // fmt::print on a full disk, or no more threads
    return ReportSystemError(problem);
  } catch (const std::bad_alloc&) {  // for memory that the plan does not count
    PrintError(
        "error: the system refuses memory to this process: raise its limit (ulimit -v, or its "
        "control group)\n");
    return ExitCode(ErrorCode::kResourceExhausted);
  } catch (const std::exception& problem) {
    PrintError(fmt::format("error: {}\n", problem.what()));
    return ExitCode(ErrorCode::kInternal);
  }
}

}  // namespace sluice::cli
