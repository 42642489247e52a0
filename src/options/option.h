// What an option is: one row of the table after flags, YAML keys, environment variables, help and
// docs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace sluice::options {

// What a value may look like.
enum class Type {
  kFlag,  // --x, --no-x
  kString,
  kStrings,  // one or more words, or a JSON list of strings; repeating the option appends
  kInteger,  // also 64k, 1e3, 128K: see ParseInteger in values.h
  kSize,     // bytes: as kInteger, and 16GiB, 1.5GB
  kNumber,
  kChoice,  // one of `choices`
  kJson,    // a JSON object, @file, or one key at a time: --option.key value
};

// What a text is the name of: shells complete it so.
enum class ValueKind { kPlain, kFile, kFolder, kModel };

// The subcommands that take options, as bits.
enum Command : uint32_t {
  kServe = 1 << 0,
  kChat = 1 << 1,
  kComplete = 1 << 2,
  kInspect = 1 << 3,
  kDoctor = 1 << 4,
  kBenchLatency = 1 << 5,
  kBenchThroughput = 1 << 6,
  kTokenize = 1 << 7,
  kRender = 1 << 8,
  kVersion = 1 << 9,
  kBenchServe = 1 << 10,
  kBenchSweep = 1 << 11,
  kRunBatch = 1 << 12,
  kCollectEnv = 1 << 13,
  kExplainOptions = 1 << 14,
  kEval = 1 << 15,
  kRecipe = 1 << 16,
  kQuantize = 1 << 17,
  kDiff = 1 << 18,
  kSelftest = 1 << 19,
  kKernelBench = 1 << 20,
  kParse = 1 << 21,
  kPull = 1 << 22,
  kListModels = 1 << 23,
  kRemove = 1 << 24,
  kCompletion = 1 << 25,
  kRun = 1 << 26,
  kServed = 1 << 27,
};
// Those that may run an engine in their own process.
inline constexpr uint32_t kEngineCommands =
    kServe | kChat | kComplete | kBenchLatency | kBenchThroughput | kRunBatch | kEval | kRun;
inline constexpr uint32_t kAllCommands = ~uint32_t{0};

// The program whose command line is read, by the name under which this one was started.
enum class Dialect { kSluice, kVllm, kTrtllm };

constexpr uint32_t DialectBit(Dialect dialect) {
  return uint32_t{1} << static_cast<int>(dialect);
}
inline constexpr uint32_t kAllDialects = ~uint32_t{0};

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

// What giving an option, or a key or variable of another program, does here.
enum class Effect { kActs, kMapped, kNoEffect, kRefused };
std::string_view EffectName(Effect effect);  // "acts", "mapped", "no effect", "refused"

struct Option {
  // "max-model-len": flag --max-model-len, YAML key, environment SLUICE_MAX_MODEL_LEN; the key of
  // Settings.
  std::string_view name = {};
  Type type = Type::kString;
  std::string_view default_value = {};  // as a user would write it; "" where there is none
  std::string_view group = {};
  uint32_t commands = 0;
  std::string_view help = {};  // one sentence: what it is and does

  // The flag without its dashes where it is not `name`: two commands may give one flag two meanings
  // or defaults, in two rows with different names ("bench-port" with the flag "port").
  std::string_view flag = {};
  // Defaults when run under another name, where they differ from `default_value`; "[]" for an empty
  // list.
  std::string_view vllm_default = {};
  std::string_view trtllm_default = {};

  std::string_view choices = {};  // kChoice: the words, separated by |
  // kInteger, kSize, kNumber: further words that are legal values, separated by |. kRefused: the
  // values that are accepted beside the default.
  std::string_view words = {};
  Range range = {};  // of numbers
  // kNoEffect: the option is accepted so that existing scripts run. kRefused: values other than the
  // default and `words` are errors.
  Effect effect = Effect::kActs;
  std::string_view reason = {};   // why it has no effect or is refused; of kMapped: to what
  std::string_view retired = {};  // "before VERSION: what replaced it" where its program removed it
  std::string_view environment = {};  // further environment variables that set it, separated by |
  // Further flags of every dialect, with dashes, separated by |: "-tp|--other".
  std::string_view aliases = {};
  std::string_view trtllm = {};  // flags that mean this when run as trtllm-serve, separated by |
  // For an option that acts: the option without which it has no effect, and after "=" the values of
  // that option that suffice, separated by | ("device=cuda|emulated"); a flag has to be on.
  std::string_view needs = {};
  // kJson, where keys that are not listed here have no effect, for `reason`: those that act,
  // separated by |.
  std::string_view keys = {};
  bool secret = false;               // never printed
  bool value_optional = false;       // the flag may stand without its value
  uint32_t dialects = kAllDialects;  // that know it, as DialectBit()
  ValueKind value = ValueKind::kPlain;
};

// The table, in the order of its groups: rows of code (rows.h) and of the dialects' data files
// (dialect_table.h).
std::span<const Option> Table();

// The row called `name`. CHECKs that there is one.
const Option& Find(std::string_view name);

std::string_view TypeName(Type type);

// The names of the subcommands; that of bit i is CommandNames()[i].
std::span<const std::string_view> CommandNames();

// The environment variable that sets `option`: SLUICE_MAX_MODEL_LEN.
std::string VariableOf(const Option& option);

// The default in `dialect`, as a user would write it.
std::string_view DefaultOf(const Option& option, Dialect dialect);

// The flag and YAML key of `option`, without dashes in front.
inline std::string_view FlagName(const Option& option) {
  return option.flag.empty() ? option.name : option.flag;
}

}  // namespace sluice::options
