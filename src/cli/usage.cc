#include "cli/usage.h"

#include <string_view>

#include <fmt/format.h>

#include "base/log_format.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "cli/exit_code.h"
#include "cli/progress.h"
#include "cli/version.h"

namespace sluice::cli {
namespace {

using options::Dialect;

// vLLM exits with 2 only for parser errors, and with 1 for all others.
constexpr int kVllmFailure = 1;
constexpr std::string_view kVllmRelease = "0.33.0";

std::string_view ProgramName(Dialect dialect) {
  switch (dialect) {
    case Dialect::kVllm: return "vllm";
    case Dialect::kTrtllm: return "trtllm-serve";
    case Dialect::kSluice: break;
  }
  return "sluice";
}

// Text from a damaged file must not control or fill the terminal.
std::string Printable(std::string_view message) {
  constexpr size_t kLongest = 8000;
  std::string text = EscapeControls(Utf8Prefix(message, kLongest), "\n\t");
  if (message.size() > kLongest) text += "...";
  return text;
}

}  // namespace

std::string VersionIn(Dialect dialect) {
  if (dialect == Dialect::kVllm) return fmt::format("{}+sluice.{}", kVllmRelease, Version());
  return Version();
}

int ReportUnknownCommand(Dialect dialect, const std::vector<std::string>& words) {
  const std::vector<std::string> known = SuggestedCommands();
  const std::string word =
      words[0] == "bench" && words.size() > 1 ? words[0] + " " + words[1] : words[0];
  const std::string message =
      fmt::format("error: unknown command '{}'{}", Printable(word), DidYouMean(word, known));
  if (dialect == Dialect::kSluice) {
    PrintError(fmt::format("{}\n`sluice help` lists the commands.\n", message));
  } else {
    PrintError(
        fmt::format("usage: {0} COMMAND [options]\n{0}: {1}\n", ProgramName(dialect), message));
  }
  return kExitUsage;
}

int ReportUsage(Dialect dialect, const Command& command, const Error& error) {
  if (dialect == Dialect::kSluice) {
    PrintError(fmt::format("error: {}\n`sluice help {}` lists the options.\n",
                           Printable(error.message), command.name));
    return ExitCode(error.code);
  }
  PrintError(fmt::format("usage: {0} {1} {2}\n{0} {1}: error: {3}\n", ProgramName(dialect),
                         command.name, command.arguments, Printable(error.message)));
  // vLLM accepts an out-of-range number on its command line and fails only later.
  const bool late = dialect == Dialect::kVllm && error.code == ErrorCode::kUnsupported;
  return late ? kVllmFailure : ExitCode(error.code);
}

int ReportFailure(const options::Settings& settings, const Error& error) {
  if (CurrentLogFormat() == LogFormat::kJson) {
    PrintError(FormatLogLine(LogLevel::kError, "sluice", error.message));
  } else {
    PrintError(fmt::format("error: {}\n", Printable(error.message)));
  }
  const bool vllm = settings.dialect() == Dialect::kVllm && error.code != ErrorCode::kCancelled;
  return vllm ? kVllmFailure : ExitCode(error.code);
}

}  // namespace sluice::cli
