#include "models/lora_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr int64_t kMaxRank = 1 << 20;
constexpr double kMaxAlpha = 1e9;
constexpr size_t kMaxPatterns = 4096;

// Returns whether a field has a value other than null, false, "" or an empty container.
bool IsSet(const json::Value* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_bool()) return value->as_bool();
  if (value->is_array()) return !value->as_array().empty();
  if (value->is_object()) return !value->as_object().empty();
  if (value->is_string()) return !value->as_string().empty();
  return true;
}

// A field that must not be set.
struct RefusedField {
  const char* name;
  const char* what;
};
constexpr RefusedField kRefused[] = {
    {"use_dora", "DoRA adapters, whose weights are decomposed into direction and magnitude,"},
    {"lora_bias", "a bias of B"},
    {"layer_replication", "replicated layers"},
    {"alora_invocation_tokens", "activated LoRA, which begins inside a prompt,"},
    {"use_bdlora", "block-diagonal factors"},
    {"use_qalora", "QALoRA"},
    {"trainable_token_indices", "rows of the embedding that are trained whole"},
};

// Prefixes of initializations that leave the base unchanged, so that the stored adapter has the
// usual meaning.
constexpr const char* kPlainBeginnings[] = {"gaussian", "eva", "orthogonal", "mica", "lora_ga"};

tl::unexpected<Error> NotServed(const char* field, const std::string& what) {
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{}: {} not served; merge the adapter into its base with peft's "
                          "merge_and_unload() and serve the result",
                          field, what),
              field);
}

Status CheckRefused(const json::Value& value) {
  for (const RefusedField& refused : kRefused) {
    if (IsSet(value.Find(refused.name)))
      return NotServed(refused.name, fmt::format("{} are", refused.what));
  }
  const json::Value* kind = value.Find("peft_type");
  if (kind != nullptr && (!kind->is_string() || kind->as_string() != "LORA")) {
    return NotServed(
        "peft_type",
        fmt::format("adapters of the kind {} (only LORA is supported) are", ShortText(*kind)));
  }
  const json::Value* begin = value.Find("init_lora_weights");
  if (begin != nullptr && begin->is_string() &&
      std::none_of(std::begin(kPlainBeginnings), std::end(kPlainBeginnings),
                   [&](const char* plain) { return begin->as_string() == plain; })) {
    return NotServed("init_lora_weights",
                     fmt::format("adapters that began with {}, which changes the base's weights, "
                                 "are",
                                 ShortText(*begin)));
  }
  return {};
}

// Accepts a list of names, a regular expression or "all-linear". The tensors determine which
// modules have factors; as in peft, a name that matches no module is ignored. The field is optional
// if target_parameters (tensors that are not modules, such as experts) is set.
Status CheckTargets(const json::Value& config) {
  const json::Value* const targets = config.Find("target_modules");
  if (IsSet(config.Find("target_parameters")) && !IsSet(targets)) return {};
  const auto is_name = [](const json::Value& name) { return name.is_string(); };
  if (targets != nullptr &&
      (targets->is_string() ||
       (targets->is_array() && !targets->as_array().empty() &&
        std::all_of(targets->as_array().begin(), targets->as_array().end(), is_name)))) {
    return {};
  }
  return Fail(ErrorCode::kInvalidData,
              fmt::format("target_modules: expected the names of modules, a regular expression or "
                          "\"all-linear\", found {}",
                          targets == nullptr ? "nothing" : ShortText(*targets)),
              "target_modules");
}

Result<std::vector<std::string>> ReadSavedModules(const json::Value& config) {
  const json::Value* const given = config.Find("modules_to_save");
  std::vector<std::string> modules;
  if (!IsSet(given)) return modules;
  const auto is_name = [](const json::Value& name) {
    return name.is_string() && !name.as_string().empty();
  };
  if (!given->is_array() || given->as_array().size() > kMaxPatterns ||
      !std::all_of(given->as_array().begin(), given->as_array().end(), is_name)) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("modules_to_save: expected at most {} names of modules, found {}",
                            kMaxPatterns, ShortText(*given)),
                "modules_to_save");
  }
  for (const json::Value& name : given->as_array()) modules.push_back(name.as_string());
  return modules;
}

// Checks that `bias` has a known value. The tensors show which biases were trained.
Status CheckBias(const json::Value& config) {
  const json::Value* const bias = config.Find("bias");
  if (bias == nullptr || bias->is_null()) return {};
  for (const char* known : {"none", "all", "lora_only"}) {
    if (bias->is_string() && bias->as_string() == known) return {};
  }
  return Fail(
      ErrorCode::kInvalidData,
      fmt::format("bias: expected \"none\", \"all\" or \"lora_only\", found {}", ShortText(*bias)),
      "bias");
}

template <typename Number>
Status ReadPatterns(const json::Value& value, const char* field, double least, double most,
                    std::vector<std::pair<NamePattern, Number>>& patterns) {
  const json::Value* given = value.Find(field);
  if (given == nullptr || given->is_null()) return {};
  if (!given->is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: expected an object, found {}", field, ShortText(*given)), field);
  }
  if (given->as_object().size() > kMaxPatterns) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: expected at most {} patterns, found {}", field, kMaxPatterns,
                            given->as_object().size()),
                field);
  }
  for (const auto& [key, number] : given->as_object()) {
    const bool fits = number.is_number() && !number.is_big_integer() &&
                      (std::is_floating_point_v<Number> || number.is_integer()) &&
                      number.as_double() >= least && number.as_double() <= most;
    if (!fits) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}[\"{}\"]: expected a number from {} to {}, found {}", field,
                              key.substr(0, 100), least, most, ShortText(number)),
                  field);
    }
    auto pattern = NamePattern::PeftKey(key);
    if (!pattern) return tl::unexpected(std::move(pattern).error().In(field));
    patterns.emplace_back(*std::move(pattern), static_cast<Number>(number.as_double()));
  }
  return {};
}

template <typename Number>
Number Match(const std::vector<std::pair<NamePattern, Number>>& patterns, std::string_view module,
             Number otherwise) {
  for (const auto& [pattern, number] : patterns) {
    if (pattern.Matches(module)) return number;
  }
  return otherwise;
}

}  // namespace

float LoraConfig::ScaleOf(std::string_view module, int64_t module_rank) const {
  const double module_alpha = Match(alpha_pattern, module, alpha);
  const auto divisor = static_cast<double>(module_rank);
  return static_cast<float>(module_alpha / (rank_stabilized ? std::sqrt(divisor) : divisor));
}

int64_t LoraConfig::RankOf(std::string_view module) const {
  return Match(rank_pattern, module, rank);
}

Result<LoraConfig> ParseLoraConfig(const json::Value& value) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("expected a JSON object, found {}", ShortText(value)));
  }
  RETURN_IF_ERROR(CheckRefused(value));
  RETURN_IF_ERROR(CheckTargets(value));
  RETURN_IF_ERROR(CheckBias(value));
  const JsonFields fields(value, "");
  const auto required = [](const auto& field, const char* name) -> Status {
    if (field) return {};
    return Fail(ErrorCode::kInvalidData, fmt::format("{} is missing", name), name);
  };
  LoraConfig config;
  ASSIGN_OR_RETURN(const auto rank, fields.Integer("r", 1, kMaxRank));
  RETURN_IF_ERROR(required(rank, "r"));
  config.rank = *rank;
  ASSIGN_OR_RETURN(const auto alpha, fields.Number("lora_alpha", -kMaxAlpha, kMaxAlpha));
  RETURN_IF_ERROR(required(alpha, "lora_alpha"));
  config.alpha = *alpha;
  ASSIGN_OR_RETURN(const auto stabilized, fields.Bool("use_rslora"));
  config.rank_stabilized = stabilized.value_or(false);
  ASSIGN_OR_RETURN(config.saved_modules, ReadSavedModules(value));
  RETURN_IF_ERROR(ReadPatterns(value, "rank_pattern", 1, kMaxRank, config.rank_pattern));
  RETURN_IF_ERROR(
      ReadPatterns(value, "alpha_pattern", -kMaxAlpha, kMaxAlpha, config.alpha_pattern));
  return config;
}

}  // namespace sluice
