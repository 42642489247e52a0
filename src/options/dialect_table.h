// What other programs have and this one accepts without acting on it: options, keys of their
// configuration files, environment variables. Data files in src/options/dialects hold them, one a
// dialect, and are compiled in.
//
// A file has one item a line; blank lines and lines that begin with # are left out:
//
//   reason NAME: TEXT                 a reason that rows of all files that follow refer to
//   dialect trtllm-serve              options that follow are known under that name only
//   [GROUP: COMMAND, COMMAND]         begins rows of options of these subcommands
//   [keys of --compilation-config]    begins rows of keys, likewise
//   [keys of the YAML file]           [environment]
//
// Columns of a row are separated by " | ". The second one is the effect with a reason's NAME:
// "no effect: NAME", "refused: NAME"; of keys also "mapped: OPTION" and "acts: TEXT".
//
//   NAMES | EFFECT | TYPE = DEFAULT | HELP | ATTRIBUTE | ...      an option
//   NAME EARLIER-NAME | EFFECT                                    a key; the second name is
//   optional
//
// NAMES of an option: its name, then optionally flag:--x (Option::flag), aliases (-x|--y) and
// trtllm:--x (Option::trtllm). TYPE is a TypeName(); choice is followed by its words (a|b);
// "= DEFAULT" is optional. ATTRIBUTES: "range MIN MAX", "accepts A|B" (Option::words), "secret",
// "value optional", "retired before VERSION: REPLACEMENT".
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/option.h"

namespace sluice::options {

struct DialectKey {
  std::string_view name;     // "pass_config.fuse_norm_quant"; of a variable * stands for any ending
  std::string_view earlier;  // its name in older releases; "" where there is none
  Effect effect = Effect::kNoEffect;
  std::string_view text;  // the reason; of kMapped the option that it sets; of kActs what it does
};

struct DialectTable {
  std::vector<Option> options;
  std::vector<DialectKey> compilation_keys;  // of vLLM's --compilation-config
  std::vector<DialectKey> yaml_keys;         // of trtllm-serve's file, dots between nested ones
  std::vector<DialectKey> variables;
};

struct DialectFile {
  std::string_view name;  // in errors
  std::string_view text;  // must outlive the table
};

// kInvalidData names file:line.
Result<DialectTable> ParseDialects(std::span<const DialectFile> files);

// The files that are compiled in, in the order in which they are read.
std::span<const DialectFile> DialectFiles();

// Their table. CHECKs that they can be read.
const DialectTable& Dialects();

// Whether it is a row of that table: no value of it acts, also one that is not refused.
bool IsForeign(const Option& option);

}  // namespace sluice::options
