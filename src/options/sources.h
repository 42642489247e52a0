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
  // Returns the indices of the arguments that are flags or values of secret options.
  std::vector<size_t> secrets;
  // Set by --help or -h: "" for all options; with --help=WORD, the WORD.
  std::optional<std::string> help;
};

// Parses the arguments after the subcommand by the rules of vLLM's parser:
// - Dashes and underscores in names are the same.
// - --option value and --option=value; --x, --no-x and --x=false for flags; unambiguous prefixes of
//   names.
// - The arguments up to the next option belong to a list. If an option is repeated, its last value
//   counts, with a note; lists are joined.
// - --json-option.key value sets one key, and all such keys together replace the value given for
//   the whole option. --json-option.list+ value appends.
// - -O3 is a level of vLLM's compiler, and -O{...} its settings. `--` ends the options.
//
// kInvalidArgument names the flag and, if it is unknown, the most similar known ones.
Result<CommandLine> ReadCommandLine(const std::vector<std::string>& words, Commands commands,
                                    Dialect dialect);

// The assignments of a source, and notes on options that have no effect or were mapped.
struct Found {
  std::vector<Assignment> assignments;
  std::vector<Note> notes;
};

// Reads SLUICE_<NAME> and the other variables of each option. `environment`: values by name.
Result<std::vector<Assignment>> ReadEnvironment(
    const std::map<std::string, std::string>& environment, Commands commands);

// Reads a .yaml or .yml file whose keys are option names. true and false set flags; `no-x: true` is
// also allowed. Lists and mappings set lists and JSON objects; null means "not given". A dotted key
// sets one key of a JSON option. kInvalidArgument names file:line.
Result<std::vector<Assignment>> ReadYaml(const std::filesystem::path& file, Commands commands,
                                         Dialect dialect);

// Read a YAML file of trtllm-serve, and the key=value arguments of its --set. Their keys may be
// nested, and override flags (DialectTable::yaml_keys). Errors name unknown keys with their path.
Result<Found> ReadTrtllmYaml(const std::filesystem::path& file);
Result<Found> ReadTrtllmKeys(const std::vector<std::string>& words);

// All sources together, including the file of --config or SLUICE_CONFIG.
struct Resolved {
  Settings settings;
  std::optional<std::string> help;
};
Result<Resolved> Resolve(const std::vector<std::string>& words,
                         const std::map<std::string, std::string>& environment, Commands commands,
                         Dialect dialect);

// kUnsupported for a value that its option refuses. Resolve() calls this.
Status CheckRefused(const Settings& settings);

// Returns `settings` after reading --config and --set again. Flags and environment variables are
// unchanged.
Result<Settings> ReadFilesAgain(const Settings& settings, Commands commands);

// Returns the environment of this process.
std::map<std::string, std::string> ProcessEnvironment();

// Returns the variables that set secret options: SLUICE_API_KEY, VLLM_API_KEY, ...
std::vector<std::string> SecretVariables();
// Returns the secret options given by flags, as environment variables with the same effect:
// SLUICE_API_KEY=["k"].
std::map<std::string, std::string> SecretFlags(const Settings& settings);

}  // namespace sluice::options
