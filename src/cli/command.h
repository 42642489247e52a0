// The subcommands.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/option.h"
#include "options/settings.h"

namespace sluice::cli {

// A value for Command::max_positionals: any number of words, which form a text.
inline constexpr int kManyWords = 1 << 20;

struct Command {
  std::string_view name;       // for example "serve", "bench latency"
  std::string_view arguments;  // for example "MODEL [options]"
  std::string_view summary;    // one line for the help page
  options::Command bit;
  // Runs the command. Returns the exit code; ExitCode() converts an error.
  Result<int> (*run)(const options::Settings& settings);
  int max_positionals = 0;
};

// All commands, in the order of the help page.
std::span<const Command> Commands();

// Returns the command for which `word` is a synonym that other programs use ("ls" for "list"); ""
// if there is none.
std::string_view SynonymOf(std::string_view word);

// Names to suggest instead of an unknown command. None of them removes anything.
std::vector<std::string> SuggestedCommands();

// Each of these functions is defined in its own file.
Result<int> RunServe(const options::Settings& settings);
Result<int> RunChat(const options::Settings& settings);
Result<int> RunAndChat(const options::Settings& settings);
Result<int> RunServed(const options::Settings& settings);
Result<int> RunComplete(const options::Settings& settings);
Result<int> RunInspect(const options::Settings& settings);
Result<int> RunPlan(const options::Settings& settings);
Result<int> RunFit(const options::Settings& settings);
Result<int> RunDoctor(const options::Settings& settings);
Result<int> RunBenchServe(const options::Settings& settings);
Result<int> RunBenchSweep(const options::Settings& settings);
Result<int> RunBenchLatency(const options::Settings& settings);
Result<int> RunBenchThroughput(const options::Settings& settings);
Result<int> RunEval(const options::Settings& settings);
Result<int> RunQuantize(const options::Settings& settings);
Result<int> RunDiff(const options::Settings& settings);
Result<int> RunRecipeLint(const options::Settings& settings);
Result<int> RunBatch(const options::Settings& settings);
Result<int> RunTokenizeCommand(const options::Settings& settings);
Result<int> RunRenderCommand(const options::Settings& settings);
Result<int> RunParseCommand(const options::Settings& settings);
Result<int> RunExplainOptions(const options::Settings& settings);
Result<int> RunSelftest(const options::Settings& settings);
Result<int> RunKernelBench(const options::Settings& settings);
Result<int> RunCollectEnv(const options::Settings& settings);
Result<int> RunPull(const options::Settings& settings);
Result<int> RunList(const options::Settings& settings);
Result<int> RunRemove(const options::Settings& settings);
Result<int> RunReplay(const options::Settings& settings);
Result<int> RunVerify(const options::Settings& settings);
Result<int> RunShadow(const options::Settings& settings);
Result<int> RunReceiptKey(const options::Settings& settings);
Result<int> RunCompletion(const options::Settings& settings);
Result<int> RunVersion(const options::Settings& settings);

// `sluice help [words]`; --markdown prints pages of docs/, --man the manual page.
Result<int> RunHelp(const std::vector<std::string>& words);
// Returns the help for an empty command line.
std::string ShortHelp();
// Returns the list of all commands.
std::string LongHelp();
// Returns help on a command's options that contain `filter`. "": only the most common options, if
// there are many; "all": all options.
std::string CommandHelp(const Command& command, std::string_view filter);
// Lists the two-word commands whose first word is `word`; "" if there are none.
std::string FamilyHelp(std::string_view word);

// Runs the program. `arguments` begin with the program's name. Returns the exit code.
int Main(const std::vector<std::string>& arguments);

}  // namespace sluice::cli
