// What an option is: one row of the table behind flags, YAML keys, environment variables, help and
// docs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
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
};
// Those that may run an engine in their own process.
inline constexpr uint32_t kEngineCommands =
    kServe | kChat | kComplete | kBenchLatency | kBenchThroughput;
inline constexpr uint32_t kAllCommands = ~uint32_t{0};

// Whose command line is being read: the name under which the program was started.
enum class Dialect { kSluice, kVllm, kTrtllm };

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

struct Option {
  std::string_view name =
      {};  // "max-model-len": flag --max-model-len, YAML key, environment SLUICE_MAX_MODEL_LEN
  Type type = Type::kString;
  std::string_view default_value = {};  // as a user would write it; "" where there is none
  std::string_view group = {};
  uint32_t commands = kServe;
  std::string_view help = {};  // one sentence: what it is and does

  std::string_view choices = {};  // kChoice: the words, separated by |
  std::string_view words =
      {};            // kInteger and kSize: further words that are legal values, separated by |
  Range range = {};  // of numbers
  // Not empty: the option is taken so that existing scripts run, and has no effect; the text says
  // why, and is said once.
  std::string_view no_effect = {};
  std::string_view environment = {};  // further environment variables that set it, separated by |
  std::string_view aliases =
      {};  // further flags of every dialect, with dashes, separated by |: "-tp|--other"
  std::string_view trtllm = {};  // flags that mean this when run as trtllm-serve, separated by |
  bool secret = false;           // never printed
};

// The table, in the order of its groups.
std::span<const Option> Table();

// The row called `name`. CHECKs that there is one.
const Option& Find(std::string_view name);

std::string_view TypeName(Type type);

}  // namespace sluice::options
