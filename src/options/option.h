// An option: a row of the table from which flags, YAML keys, environment variables, help and docs
// are derived.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace sluice::options {

// The format of a value.
enum class Type {
  kFlag,  // --x or --no-x
  kString,
  kStrings,  // one or more words, or a JSON list of strings; a repeated option appends
  kInteger,  // accepts also 64k, 1e3, 128K: see ParseInteger in values.h
  kSize,     // a number of bytes: like kInteger, also 16GiB, 1.5GB
  kNumber,
  kChoice,  // one of `choices`
  kJson,    // a JSON object, @file, or one key at a time: --option.key value
};

// The kind of object that a string names, for shell completion.
enum class ValueKind { kPlain, kFile, kFolder, kModel };

// The subcommands that accept options, as bits.
enum Command : uint64_t {
  kServe = 1ULL << 0,
  kChat = 1ULL << 1,
  kComplete = 1ULL << 2,
  kInspect = 1ULL << 3,
  kDoctor = 1ULL << 4,
  kBenchLatency = 1ULL << 5,
  kBenchThroughput = 1ULL << 6,
  kTokenize = 1ULL << 7,
  kRender = 1ULL << 8,
  kVersion = 1ULL << 9,
  kBenchServe = 1ULL << 10,
  kBenchSweep = 1ULL << 11,
  kRunBatch = 1ULL << 12,
  kCollectEnv = 1ULL << 13,
  kExplainOptions = 1ULL << 14,
  kEval = 1ULL << 15,
  kRecipe = 1ULL << 16,
  kQuantize = 1ULL << 17,
  kDiff = 1ULL << 18,
  kSelftest = 1ULL << 19,
  kKernelBench = 1ULL << 20,
  kParse = 1ULL << 21,
  kPull = 1ULL << 22,
  kListModels = 1ULL << 23,
  kRemove = 1ULL << 24,
  kCompletion = 1ULL << 25,
  kRun = 1ULL << 26,
  kServed = 1ULL << 27,
  kReplay = 1ULL << 28,
  kVerify = 1ULL << 29,
  kReceiptKey = 1ULL << 30,
  kPlan = 1ULL << 31,
  kFit = 1ULL << 32,
  kShadow = 1ULL << 33,
};
// A set of commands: bits of Command.
using Commands = uint64_t;

// Commands whose process may run an engine.
inline constexpr Commands kEngineCommands = kServe | kChat | kComplete | kBenchLatency |
                                            kBenchThroughput | kRunBatch | kEval | kRun | kReplay |
                                            kVerify | kShadow;
inline constexpr Commands kAllCommands = ~Commands{0};

// The program whose command line is parsed. The name under which this program was started
// determines it.
enum class Dialect { kSluice, kVllm, kTrtllm };

constexpr uint32_t DialectBit(Dialect dialect) {
  return uint32_t{1} << static_cast<int>(dialect);
}
inline constexpr uint32_t kAllDialects = ~uint32_t{0};

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

// The effect of an option, or of a key or variable of another program.
enum class Effect { kActs, kMapped, kNoEffect, kRefused };
std::string_view EffectName(Effect effect);  // "acts", "mapped", "no effect", "refused"

struct Option {
  // "max-model-len": the key in Settings. It also determines the flag --max-model-len, the YAML key
  // and the environment variable SLUICE_MAX_MODEL_LEN.
  std::string_view name = {};
  Type type = Type::kString;
  std::string_view default_value = {};  // the default as a user would write it; "" if there is none
  std::string_view group = {};
  Commands commands = 0;
  std::string_view help = {};  // one sentence on the option's meaning and effect

  // The flag without dashes, if it differs from `name`. Two commands may give the same flag two
  // meanings or defaults, in two rows with different names ("bench-port" with flag "port").
  std::string_view flag = {};
  // Defaults under other program names, if they differ from `default_value`; "[]" for an empty
  // list.
  std::string_view vllm_default = {};
  std::string_view trtllm_default = {};

  std::string_view choices = {};  // kChoice: the values, separated by |
  // Separated by |. kInteger, kSize, kNumber: words that are valid in addition to numbers.
  // kRefused: values that are accepted in addition to the default.
  std::string_view words = {};
  Range range = {};  // valid range of numbers
  // kRefused: if not empty, those of `words` that have an effect; `reason` says why others have
  // none.
  std::string_view acting = {};
  // kNoEffect: accepted so that existing scripts run. kRefused: values other than the default and
  // `words` are errors.
  Effect effect = Effect::kActs;
  std::string_view reason = {};       // why the option has no effect or is refused; for kMapped,
                                      // the target
  std::string_view retired = {};      // "before VERSION: REPLACEMENT" if the other program has
                                      // removed it
  std::string_view environment = {};  // additional environment variables, separated by |
  // Additional flags in every dialect, with dashes, separated by |: "-tp|--other".
  std::string_view aliases = {};
  std::string_view trtllm = {};  // the option's flags when the program is named trtllm-serve,
                                 // separated by |
  // For kActs: an option that this option needs to have an effect, optionally with "=" and the
  // values that suffice, separated by | ("device=cuda|emulated"). If it is a flag, it must be on.
  std::string_view needs = {};
  // kJson: if not empty, the keys that have an effect, separated by |. Other keys have no effect,
  // because of `reason`.
  std::string_view keys = {};
  bool secret = false;               // whether the value is never printed
  bool value_optional = false;       // whether the flag may be given without a value
  uint32_t dialects = kAllDialects;  // the dialects in which the option exists, as DialectBit()
  ValueKind value = ValueKind::kPlain;
};

// All options, in the order of their groups: from code (rows.h) and from the dialects' data files
// (dialect_table.h).
std::span<const Option> Table();

// Returns the row `name`. CHECKs that it exists.
const Option& Find(std::string_view name);

std::string_view TypeName(Type type);

// The names of the subcommands; CommandNames()[i] belongs to bit i.
std::span<const std::string_view> CommandNames();

// Returns the environment variable for `option`: SLUICE_MAX_MODEL_LEN.
std::string VariableOf(const Option& option);

// Returns the default in `dialect`, as a user would write it.
std::string_view DefaultOf(const Option& option, Dialect dialect);

// Returns the flag and YAML key of `option`, without leading dashes.
inline std::string_view FlagName(const Option& option) {
  return option.flag.empty() ? option.name : option.flag;
}

}  // namespace sluice::options
