#include "server/api/request/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "server/api/common/python_text.h"
#include "server/api/request/token_rules.h"

namespace sluice {
namespace {

constexpr int64_t kMaxBeams = 64;
constexpr int64_t kMaxPattern = 4096;  // the work per token grows with the length of patterns
// Maximum bytes of a name that is kept with each sequence or written into each event.
constexpr size_t kMaxNameBytes = 1024;

ApiStatus CheckRepetition(const RepetitionRule& rule) {
  const bool sizes = rule.min_size >= 0 && rule.min_size <= rule.max_size;
  const bool bounded = rule.max_size <= kMaxPattern && rule.min_count <= kMaxPattern;
  if (sizes && bounded && (rule.max_size == 0 || rule.min_count >= 2)) return {};
  return BadRequest(fmt::format(
      "repetition_detection must have 0 <= min_pattern_size <= max_pattern_size <= {} and, unless "
      "max_pattern_size is 0, 2 <= min_count <= {}.",
      kMaxPattern, kMaxPattern));
}

// Refuses options that beam search does not support.
ApiStatus CheckBeamSearch(const SamplingFields& fields) {
  if (fields.n > kMaxBeams) {
    return BadParameter(
        fmt::format("n, the width of the beam, must be at most {}, got {}", kMaxBeams, fields.n),
        "n", std::to_string(fields.n));
  }
  if (!std::isfinite(fields.length_penalty)) {
    return BadParameter("length_penalty must be a finite number", "length_penalty",
                        PythonFloat(fields.length_penalty));
  }
  if (!fields.stop.empty()) return Unsupported("a stop string in beam search", "stop");
  if (fields.prompt_logprobs)
    return Unsupported("prompt_logprobs (or echo with logprobs) in beam search", "prompt_logprobs");
  if (fields.repetition.max_size > 0)
    return Unsupported("repetition_detection in beam search", "repetition_detection");
  return {};
}

ApiResult<int32_t> ResolveLogprobs(int64_t count, std::string_view kind, std::string_view name,
                                   const ModelContext& model) {
  if (count == -1) count = model.vocab_size;
  if (count > model.max_logprobs) {
    return BadParameter(
        fmt::format("Requested {} logprobs of {}, which is greater than max allowed: {}", kind,
                    count, model.max_logprobs),
        name, std::to_string(count));
  }
  return static_cast<int32_t>(count);
}

LogprobsMode LogprobsModeOf(std::string_view name) {
  if (name == "processed_logprobs") return LogprobsMode::kProcessedLogprobs;
  if (name == "raw_logits") return LogprobsMode::kRawLogits;
  if (name == "processed_logits") return LogprobsMode::kProcessedLogits;
  return LogprobsMode::kRawLogprobs;
}

using Number = std::variant<int64_t, double>;

std::string ToText(const Number& value) {
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  return PythonFloat(std::get<double>(value));
}

// One condition on a value of a request. NaN meets no condition.
struct Condition {
  bool holds;
  std::string_view name;
  std::string_view rule;
  Number value;
  bool names_param = false;  // whether the error has a `param`, as it does for the same fields in
                             // vLLM
};

ApiStatus Check(std::initializer_list<Condition> conditions) {
  for (const auto& [holds, name, rule, value, names_param] : conditions) {
    if (holds) continue;
    const std::string text = ToText(value);
    const std::string message = fmt::format("{} must be {}, got {}.", name, rule, text);
    return names_param ? BadParameter(message, name, text) : BadRequest(message);
  }
  return {};
}

ApiStatus CheckRanges(const SamplingFields& fields, const SamplingParams& params,
                      const ModelContext& model) {
  const double temperature = params.temperature;
  API_RETURN_IF_ERROR(Check({
      {fields.n >= 1, "n", "at least 1", fields.n},
      {fields.n <= model.config.max_n, "n",
       fmt::format("at most {} (VLLM_MAX_N_SEQUENCES)", model.config.max_n), fields.n},
      {std::abs(params.presence_penalty) <= 2, "presence_penalty", "in [-2, 2]",
       params.presence_penalty},
      {std::abs(params.frequency_penalty) <= 2, "frequency_penalty", "in [-2, 2]",
       params.frequency_penalty},
      {params.repetition_penalty > 0 && !std::isinf(params.repetition_penalty),
       "repetition_penalty", "greater than zero", params.repetition_penalty},
      {std::isfinite(temperature), "temperature", "a finite number", temperature, true},
      {temperature >= 0, "temperature", "non-negative", temperature, true},
      {temperature <= 2, "temperature", "in [0, 2]", temperature, true},
      {params.top_p > 0 && params.top_p <= 1, "top_p", "in (0, 1]", params.top_p, true},
      {params.top_k >= -1, "top_k", "0 (disable), or at least 1", params.top_k},
      {params.min_p >= 0 && params.min_p <= 1, "min_p", "in [0, 1]", params.min_p},
      {fields.min_tokens >= 0, "min_tokens", "greater than or equal to 0", fields.min_tokens},
      {temperature > 0 || fields.n == 1 || fields.use_beam_search, "n",
       "1 when using greedy sampling", fields.n},
  }));
  for (const std::string& text : fields.stop) {
    if (text.empty()) return BadRequest("stop cannot contain an empty string.");
  }
  const auto check_length = [&](std::string_view name, std::optional<int64_t> length) -> ApiStatus {
    if (!length || *length <= model.max_model_len) return {};
    return BadParameter(fmt::format("{}={} cannot be greater than max_model_len={}.", name, *length,
                                    model.max_model_len),
                        name, std::to_string(*length));
  };
  API_RETURN_IF_ERROR(check_length(fields.max_tokens_name, fields.max_tokens));
  API_RETURN_IF_ERROR(check_length("truncate_prompt_tokens", fields.truncate_prompt_tokens));
  if (fields.request_id) API_RETURN_IF_ERROR(CheckNameLength("request_id", *fields.request_id));
  return CheckNameLength("cache_salt", fields.cache_salt);
}

}  // namespace

ApiStatus CheckNameLength(std::string_view field, std::string_view value) {
  if (value.size() <= kMaxNameBytes) return {};
  return BadParameter(
      fmt::format("{} must have at most {} bytes, got {}", field, kMaxNameBytes, value.size()),
      field);
}

ApiResult<SamplingParams> ResolveSampling(const SamplingFields& fields, const ModelContext& model) {
  const SamplingDefaults& defaults = model.defaults;
  SamplingParams params;
  params.logprobs_mode = LogprobsModeOf(model.config.logprobs_mode);
  params.presence_penalty = fields.presence_penalty;
  params.frequency_penalty = fields.frequency_penalty;
  params.repetition_penalty =
      fields.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0));
  params.temperature = fields.temperature.value_or(defaults.temperature.value_or(1.0));
  params.top_p = fields.top_p.value_or(defaults.top_p.value_or(1.0));
  params.top_k = fields.top_k.value_or(defaults.top_k.value_or(0));
  params.min_p = fields.min_p.value_or(defaults.min_p.value_or(0.0));
  params.ignore_eos = fields.ignore_eos;
  params.min_tokens = fields.min_tokens;
  if (fields.seed && *fields.seed != -1) params.seed = fields.seed;
  API_RETURN_IF_ERROR(CheckRanges(fields, params, model));
  params.top_k = std::max<int64_t>(params.top_k, 0);
  if (params.temperature == 0) {
    params.top_p = 1;
    params.top_k = 0;
    params.min_p = 0;
  } else {
    params.temperature = std::max(params.temperature, kSmallestTemperature);
  }
  // If logprob_token_ids is given, ResolveTokenRules sets the number of logprobs.
  if (fields.logprobs && fields.logprob_token_ids) {
    params.logprobs = 0;
  } else if (fields.logprobs) {
    API_ASSIGN_OR_RETURN(params.logprobs,
                         ResolveLogprobs(*fields.logprobs, "sample", "logprobs", model));
  }
  if (fields.prompt_logprobs) {
    API_ASSIGN_OR_RETURN(params.prompt_logprobs, ResolveLogprobs(*fields.prompt_logprobs, "prompt",
                                                                 "prompt_logprobs", model));
  }
  API_RETURN_IF_ERROR(ResolveTokenRules(fields, model, params));
  API_RETURN_IF_ERROR(CheckRepetition(fields.repetition));
  if (fields.use_beam_search) API_RETURN_IF_ERROR(CheckBeamSearch(fields));
  return params;
}

ApiResult<int64_t> ResolveMaxTokens(const SamplingFields& fields, const ModelContext& model,
                                    int64_t prompt_tokens) {
  if (prompt_tokens >= model.max_model_len) {
    return BadParameter(
        fmt::format("This model's maximum context length is {} tokens. However, your prompt "
                    "contains {} input tokens, which leaves no room for a token of the answer. "
                    "Please reduce the length of the input prompt.",
                    model.max_model_len, prompt_tokens),
        "input_tokens", std::to_string(prompt_tokens));
  }
  int64_t max_tokens = model.max_model_len - prompt_tokens;
  if (fields.max_tokens) {
    max_tokens = std::min(max_tokens, *fields.max_tokens);
  } else if (model.defaults.max_new_tokens) {
    max_tokens = std::min(max_tokens, *model.defaults.max_new_tokens);
  }
  if (model.defaults.max_new_tokens_limit)
    max_tokens = std::min(max_tokens, *model.defaults.max_new_tokens_limit);
  if (max_tokens < 1) {
    return BadParameter(fmt::format("max_tokens must be at least 1, got {}.", max_tokens),
                        "max_tokens", std::to_string(max_tokens));
  }
  if (fields.min_tokens > max_tokens) {
    return BadRequest(fmt::format("min_tokens must be less than or equal to max_tokens={}, got {}.",
                                  max_tokens, fields.min_tokens));
  }
  return max_tokens;
}

}  // namespace sluice
