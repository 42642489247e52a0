// The sources of settings: the command line, the environment, YAML files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "options/option.h"
#include "options/settings.h"

namespace sluice::options {

struct CommandLine {
  std::vector<Assignment> assignments;
  std::vector<std::string> positionals;
  std::vector<Note> notes;
  // Places in the words that were read: the flags of secret options and their values.
  std::vector<size_t> secrets;
  // Set by --help or -h: "" for all, else the word of --help=WORD.
  std::optional<std::string> help;
};

// Reads the words after the subcommand. The rules are those of vLLM's parser: dashes and
// underscores in names are the same; --option value and --option=value; --x and --no-x for flags
// (--x=false too); an unambiguous beginning of a name stands for the name; lists take words up to
// the next option; of repeated options the last one counts (lists are joined), which is noted;
// --json-option.key value sets one key, and all such keys of an option together take the place of
// what was given for it as a whole; --json-option.list+ value appends; -O3 is a level of vLLM's
// compiler and -O{...} are its settings; `--` ends the options. kInvalidArgument names the flag
// and, for an unknown one, the nearest known ones.
Result<CommandLine> ReadCommandLine(const std::vector<std::string>& words, uint32_t commands,
                                    Dialect dialect);

// Assignments of a source, and notes on what has no effect or was mapped.
struct Found {
  std::vector<Assignment> assignments;
  std::vector<Note> notes;
};

// Reads SLUICE_<NAME> and the further variables of each option. `environment`: name to value.
Result<std::vector<Assignment>> ReadEnvironment(
    const std::map<std::string, std::string>& environment, uint32_t commands);

// Reads a .yaml or .yml file whose keys are names of options. true and false set flags (`no-x:
// true` too), lists and mappings give lists and JSON objects, null stands for "not given"; a dotted
// key sets one key of a JSON option. kInvalidArgument names file:line.
Result<std::vector<Assignment>> ReadYaml(const std::filesystem::path& file, uint32_t commands,
                                         Dialect dialect);

// Reads a file of trtllm-serve, whose keys nest and override flags (DialectTable::yaml_keys), and
// words of its --set, each key=value. Unknown keys are errors with their path.
Result<Found> ReadTrtllmYaml(const std::filesystem::path& file);
Result<Found> ReadTrtllmKeys(const std::vector<std::string>& words);

// All of them together; `file` of --config or SLUICE_CONFIG.
struct Resolved {
  Settings settings;
  std::optional<std::string> help;
};
Result<Resolved> Resolve(const std::vector<std::string>& words,
                         const std::map<std::string, std::string>& environment, uint32_t commands,
                         Dialect dialect);

// kUnsupported for a value that its option refuses. Resolve() has checked what it returns.
Status CheckRefused(const Settings& settings);

// `settings` with its files (--config, and --set) read again; flags and variables are what they
// were.
Result<Settings> ReadFilesAgain(const Settings& settings, uint32_t commands);

// The environment of this process.
std::map<std::string, std::string> ProcessEnvironment();

// The variables that set secret options: SLUICE_API_KEY, VLLM_API_KEY, ...
std::vector<std::string> SecretVariables();
// What was given for secret options by flags, as the variables that set them to the same:
// SLUICE_API_KEY=["k"].
std::map<std::string, std::string> SecretFlags(const Settings& settings);

}  // namespace sluice::options
