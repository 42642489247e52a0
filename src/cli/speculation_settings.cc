#include "cli/speculation_settings.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json.h"
#include "base/log.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kOption = "speculative-config";
// vLLM counts past answers, here their tokens count: so many an answer, and no more than fit into
// 12 MiB.
constexpr int64_t kTokensOfAnAnswer = 256;
constexpr int64_t kMostCachedTokens = int64_t{1} << 20;

tl::unexpected<Error> Bad(std::string_view key, std::string_view expected,
                          const json::Value& found) {
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--{}: {}: expected {}, found {}", kOption, key, expected, json::Write(found)),
      std::string(kOption));
}

// Reads keys of one object and remembers which.
class Keys {
 public:
  explicit Keys(const json::Value& object) : object_(object) {}

  const json::Value* Find(std::string_view key) {
    read_.emplace_back(key);
    const json::Value* value = object_.Find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  Result<std::optional<int>> Count(std::string_view key, int most) {
    const json::Value* value = Find(key);
    if (value == nullptr) return std::optional<int>();
    if (!value->is_integer() || value->as_integer() < 1 || value->as_integer() > most)
      return Bad(key, fmt::format("a whole number in [1, {}]", most), *value);
    return static_cast<int>(value->as_integer());
  }
  Result<std::string> Text(std::string_view key) {
    const json::Value* value = Find(key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return Bad(key, "a text", *value);
    return value->as_string();
  }
  Status Number(std::string_view key, double least, double most, double& number) {
    const json::Value* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_number() || value->as_double() < least || value->as_double() > most)
      return Bad(key, fmt::format("a number in [{}, {}]", least, most), *value);
    number = value->as_double();
    return {};
  }
  void WarnOfOthers() const {
    for (const auto& [key, value] : object_.as_object()) {
      if (std::ranges::find(read_, key) != read_.end()) continue;
      LOG_WARNING("options", "--{}: {} has no effect", kOption, key);
    }
  }

 private:
  const json::Value& object_;
  std::vector<std::string> read_;
};

// The one of both that is given: two spellings of one setting.
Result<std::optional<int>> Either(Keys& keys, std::string_view key, std::string_view other,
                                  int most) {
  ASSIGN_OR_RETURN(const std::optional<int> value, keys.Count(key, most));
  ASSIGN_OR_RETURN(const std::optional<int> second, keys.Count(other, most));
  return value ? value : second;
}

Status ReadNgram(Keys& keys, SpeculationConfig& config) {
  constexpr int kMost = kMaxSpeculativeTokens;
  ASSIGN_OR_RETURN(const std::optional<int> most,
                   Either(keys, "prompt_lookup_max", "max_matching_ngram_size", kMost));
  ASSIGN_OR_RETURN(const std::optional<int> least, keys.Count("prompt_lookup_min", kMost));
  config.lookup_max = most.value_or(least.value_or(config.lookup_max));
  config.lookup_min = least.value_or(most.value_or(config.lookup_min));
  if (config.lookup_min > config.lookup_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: prompt_lookup_min is {}, more than prompt_lookup_max, {}",
                            kOption, config.lookup_min, config.lookup_max),
                std::string(kOption));
  }
  return {};
}

Status ReadSuffix(Keys& keys, SpeculationConfig& config) {
  ASSIGN_OR_RETURN(const std::optional<int> depth,
                   keys.Count("suffix_decoding_max_tree_depth", kMaxSpeculativeTokens));
  config.lookup_max = std::max(2, depth.value_or(24));
  config.lookup_min = 2;
  RETURN_IF_ERROR(keys.Number("suffix_decoding_max_spec_factor", 0, 1000, config.max_spec_factor));
  RETURN_IF_ERROR(keys.Number("suffix_decoding_min_token_prob", 0, 1, config.min_token_prob));
  double answers = 10000;
  RETURN_IF_ERROR(keys.Number("suffix_decoding_max_cached_requests", 0, 1e9, answers));
  config.cached_tokens =
      std::min(kMostCachedTokens, static_cast<int64_t>(answers) * kTokensOfAnAnswer);
  return {};
}

}  // namespace

Result<SpeculationConfig> SpeculationOf(const options::Settings& settings) {
  using Method = SpeculationConfig::Method;
  ASSIGN_OR_RETURN(json::Value object, json::Parse(settings.TextOr(kOption, "{}")));
  if (const auto method = settings.Text("spec-method")) object.Set("method", *method);
  if (const auto tokens = settings.Integer("spec-tokens"))
    object.Set("num_speculative_tokens", *tokens);
  if (object.as_object().empty()) return SpeculationConfig();

  Keys keys(object);
  ASSIGN_OR_RETURN(std::string method, keys.Text("method"));
  ASSIGN_OR_RETURN(const std::string type, keys.Text("decoding_type"));
  ASSIGN_OR_RETURN(const std::string model, keys.Text("model"));
  if (method.empty()) method = AsciiLower(type);
  if (method.empty() && (model == "ngram" || model == "[ngram]")) method = "ngram";
  SpeculationConfig config;
  if (method == "ngram") {
    config.method = Method::kNgram;
    RETURN_IF_ERROR(ReadNgram(keys, config));
  } else if (method == "suffix") {
    config.method = Method::kSuffix;
    RETURN_IF_ERROR(ReadSuffix(keys, config));
  } else {
    LOG_WARNING("options",
                "--{}: {} is not a method of this program, which has ngram and suffix: tokens are "
                "generated one at a time, and answers are the same",
                kOption, method.empty() ? "a draft model" : method);
    return SpeculationConfig();
  }
  ASSIGN_OR_RETURN(const std::optional<int> tokens,
                   Either(keys, "num_speculative_tokens", "max_draft_len", kMaxSpeculativeTokens));
  if (!tokens && config.method == Method::kNgram) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{}: num_speculative_tokens is missing: how many tokens are proposed "
                            "at a time, 4 for example",
                            kOption),
                std::string(kOption));
  }
  config.num_tokens = tokens.value_or(config.lookup_max);
  keys.WarnOfOthers();
  return config;
}

}  // namespace sluice::cli
