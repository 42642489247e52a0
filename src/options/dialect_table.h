// Options, configuration keys and environment variables of other programs, which are accepted
// without effect. They are in data files in src/options/dialects, one per dialect, which are
// compiled in.
//
// A file has one item per line; blank lines and lines that begin with # are ignored:
//
//   reason NAME: TEXT                 defines a reason for rows of this and all later files
//   dialect trtllm-serve              the following options exist only under that name
//   [GROUP: COMMAND, COMMAND]         begins options of these subcommands
//   [keys of --compilation-config]    begins keys; likewise
//   [keys of the YAML file]           [environment]
//
// Columns are separated by " | ". The second column is the effect with a reason's NAME: "no effect:
// NAME", "refused: NAME"; for keys also "mapped: OPTION" and "acts: TEXT".
//
//   NAMES | EFFECT | TYPE = DEFAULT | HELP | ATTRIBUTE | ...      an option
//   NAME EARLIER-NAME | EFFECT                                    a key; EARLIER-NAME is optional
//
// NAMES of an option: its name, then optionally flag:--x (Option::flag), aliases (-x|--y) and
// trtllm:--x (Option::trtllm). TYPE is a TypeName(); after choice come its words (a|b). "= DEFAULT"
// is optional. ATTRIBUTES: "range MIN MAX", "accepts A|B" (Option::words), "secret", "value
// optional", "retired before VERSION: REPLACEMENT".
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/option.h"

namespace sluice::options {

struct DialectKey {
  // For example "pass_config.fuse_norm_quant"; in the name of a variable, * matches any ending.
  std::string_view name;
  std::string_view earlier;  // its name in older releases, or ""
  Effect effect = Effect::kNoEffect;
  // The reason of the effect. For kMapped, the option that the key sets; for kActs, what the key
  // does.
  std::string_view text;
};

struct DialectTable {
  std::vector<Option> options;
  std::vector<DialectKey> compilation_keys;  // keys of vLLM's --compilation-config
  std::vector<DialectKey> yaml_keys;         // keys of trtllm-serve's file; nested keys are joined
                                             // by dots
  std::vector<DialectKey> variables;
};

struct DialectFile {
  std::string_view name;  // used in error messages
  std::string_view text;  // must outlive the table
};

// kInvalidData names file:line.
Result<DialectTable> ParseDialects(std::span<const DialectFile> files);

// The compiled-in files, in the order in which they are parsed.
std::span<const DialectFile> DialectFiles();

// The table parsed from DialectFiles(). CHECKs that these files are valid.
const DialectTable& Dialects();

// Returns whether the option is in Dialects(). No value of such an option has an effect.
bool IsForeign(const Option& option);

// Returns whether `words`, an accepted value of the option, have no effect: the option is foreign,
// or the value is not among Option::acting.
bool IsIdle(const Option& option, const std::vector<std::string>& words);

}  // namespace sluice::options
