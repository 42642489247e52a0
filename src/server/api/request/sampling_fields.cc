#include "server/api/request/sampling_fields.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sluice {
namespace {

// As in vLLM, these fields accept booleans as integers, but refuse numbers in strings.
ApiStatus CheckLogprobCount(const json::Value& body, std::string_view name, int64_t& count) {
  const json::Value* value = body.Find(name);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_integer() && !value->is_bool())
    return BadParameter(fmt::format("`{}` must be an integer.", name), name, Describe(*value));
  count = value->is_bool() ? (value->as_bool() ? 1 : 0) : value->as_integer();
  if (count >= -1) return {};
  return BadParameter(fmt::format("`{}` must be a positive value or -1.", name), name,
                      Describe(*value));
}

// Makes the checks that vLLM makes before it reads the list.
ApiStatus CheckLogprobTokens(const json::Value& body, bool is_chat) {
  constexpr std::string_view kField = "logprob_token_ids";
  const json::Value* const list = Given(body, kField);
  if (list == nullptr || !list->is_array()) return {};
  if (list->as_array().empty())
    return BadParameter("`logprob_token_ids` must not be an empty list.", kField);
  if (IsTruthy(body.Find("use_beam_search")))
    return BadParameter("`logprob_token_ids` is not supported with beam search.", kField);
  const json::Value* const max_tokens = body.Find("max_tokens");
  if (!is_chat && IsTruthy(body.Find("echo")) && max_tokens != nullptr &&
      max_tokens->is_integer() && max_tokens->as_integer() == 0) {
    return BadParameter(
        "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no "
        "output tokens are generated.",
        kField);
  }
  const json::Value* const logprobs = Given(body, "logprobs");
  if (is_chat ? IsTruthy(logprobs) : logprobs != nullptr) return {};
  return BadParameter(fmt::format("when using `logprob_token_ids`, `logprobs` must be set{}.",
                                  is_chat ? " to true" : ""),
                      kField);
}

// Reads a string or a list of at most `most` strings.
void ReadStop(FieldReader& reader, size_t most, std::vector<std::string>& stop) {
  const json::Value* value = reader.Raw("stop");
  if (value == nullptr) return;
  if (value->is_string()) {
    stop.push_back(value->as_string());
  } else if (value->is_array() && value->as_array().size() <= most &&
             std::ranges::all_of(value->as_array(), &json::Value::is_string)) {
    for (const json::Value& text : value->as_array()) stop.push_back(text.as_string());
  } else {
    reader.Add("stop", fmt::format("a string or a list of at most {} strings", most), *value);
  }
}

// Reads the priority. In trtllm-serve, priorities are between 0 and 1 and the highest is served
// first; in the engine, the lowest is.
void ReadPriority(FieldReader& reader, ApiDialect dialect, int64_t& priority) {
  if (dialect != ApiDialect::kTrtllm) {
    reader.Read("priority", priority);
    return;
  }
  double share = 0.5;
  reader.Read("priority", share, {.nullable = true, .min = 0, .max = 1});
  priority = std::llround((0.5 - share) * 1000);
}

void ReadStreaming(FieldReader& reader, const ServerConfig& config, SamplingFields& fields) {
  reader.Read("stream", fields.stream, {.nullable = true});
  const json::Value::Object* given = nullptr;
  if (reader.Read("stream_options", given, {.nullable = true})) {
    FieldReader options(*reader.Raw("stream_options"), "body.stream_options", reader.errors());
    fields.include_usage = config.dialect == ApiDialect::kTrtllm;
    options.Read("include_usage", fields.include_usage, {.nullable = true});
    options.Read("continuous_usage_stats", fields.continuous_usage_stats, {.nullable = true});
    fields.continuous_usage_stats &= fields.include_usage;
  }
  if (config.enable_force_include_usage)
    fields.include_usage = fields.continuous_usage_stats = true;
  fields.stream_interval = config.stream_interval;
  reader.Read("stream_interval", fields.stream_interval, {.nullable = true, .min = 1});
}

void ReadRepetition(FieldReader& reader, RepetitionRule& rule) {
  const json::Value::Object* given = nullptr;
  if (!reader.Read("repetition_detection", given, {.nullable = true})) return;
  FieldReader inner(*reader.Raw("repetition_detection"), "body.repetition_detection",
                    reader.errors());
  inner.Read("max_pattern_size", rule.max_size);
  inner.Read("min_pattern_size", rule.min_size);
  inner.Read("min_count", rule.min_count);
}

void CheckExtraArguments(FieldReader& reader) {
  const json::Value::Object* extra = nullptr;
  if (!reader.Read("vllm_xargs", extra, {.nullable = true})) return;
  for (const auto& [key, value] : *extra) {
    if (value.is_object() || value.is_null())
      reader.Add("vllm_xargs." + key, "a string, a number or a list", value);
  }
}

}  // namespace

ApiStatus CheckRawFields(const json::Value& body, EndpointKind kind) {
  const bool is_chat = kind == EndpointKind::kChat;
  int64_t prompt_logprobs = 0;
  API_RETURN_IF_ERROR(CheckLogprobCount(body, "prompt_logprobs", prompt_logprobs));
  if (prompt_logprobs != 0 && IsTruthy(body.Find("stream"))) {
    return BadParameter("`prompt_logprobs` are not available when `stream=True`.",
                        "prompt_logprobs");
  }
  int64_t logprobs = 0;
  API_RETURN_IF_ERROR(CheckLogprobCount(body, is_chat ? "top_logprobs" : "logprobs", logprobs));
  if (is_chat && logprobs != 0 && !IsTruthy(body.Find("logprobs"))) {
    return BadParameter("when using `top_logprobs`, `logprobs` must be set to true.",
                        "top_logprobs");
  }
  API_RETURN_IF_ERROR(CheckLogprobTokens(body, is_chat));
  if (IsTruthy(body.Find("stream_options")) && !IsTruthy(body.Find("stream"))) {
    return BadParameter("Stream options can only be defined when `stream=True`.", "stream_options");
  }
  if (const json::Value* salt = body.Find("cache_salt"); salt != nullptr && !salt->is_null()) {
    if (!salt->is_string() || salt->as_string().empty()) {
      return BadParameter("Parameter 'cache_salt' must be a non-empty string if provided.",
                          "cache_salt");
    }
  }
  return {};
}

SamplingFields ReadSamplingFields(FieldReader& reader, const ServerConfig& config) {
  static constexpr std::string_view kSides[] = {"left", "right"};
  static constexpr FieldRule kNullable{.nullable = true};
  SamplingFields fields;
  reader.Read("model", fields.model);
  reader.Check<std::string>("user", kNullable);
  reader.Check<std::string>("suffix", kNullable);
  reader.Read("n", fields.n);
  reader.Read("presence_penalty", fields.presence_penalty, kNullable);
  reader.Read("frequency_penalty", fields.frequency_penalty, kNullable);
  reader.Read("temperature", fields.temperature);
  reader.Read("top_p", fields.top_p);
  reader.Read("top_k", fields.top_k);
  reader.Read("min_p", fields.min_p);
  reader.Read("repetition_penalty", fields.repetition_penalty);
  reader.Read("seed", fields.seed, {.within_int64 = true});
  ReadStop(reader, static_cast<size_t>(config.max_stop_strings), fields.stop);
  reader.Read("stop_token_ids", fields.stop_token_ids, {.nullable = true, .within_int64 = true});
  reader.Read("include_stop_str_in_output", fields.include_stop_str_in_output);
  reader.Read("ignore_eos", fields.ignore_eos);
  reader.Read("min_tokens", fields.min_tokens);
  reader.Read("prompt_logprobs", fields.prompt_logprobs);
  reader.Read("logit_bias", fields.logit_bias, kNullable);
  reader.Read("allowed_token_ids", fields.allowed_token_ids, {.within_int64 = true});
  reader.Read("bad_words", fields.bad_words);
  reader.Read("skip_special_tokens", fields.skip_special_tokens);
  reader.Check<bool>("spaces_between_special_tokens");
  reader.Read("truncate_prompt_tokens", fields.truncate_prompt_tokens, {.min = -1});
  reader.Read("truncation_side", fields.truncation_side, {.one_of = kSides});
  ReadPriority(reader, config.dialect, fields.priority);
  reader.Read("cache_salt", fields.cache_salt, kNullable);
  reader.Read("request_id", fields.request_id);
  ReadStreaming(reader, config, fields);
  reader.Read("return_token_ids", fields.return_token_ids, kNullable);
  fields.return_tokens_as_token_ids = config.return_tokens_as_token_ids;
  reader.Read("return_tokens_as_token_ids", fields.return_tokens_as_token_ids, kNullable);
  ReadRepetition(reader, fields.repetition);
  reader.Read("use_beam_search", fields.use_beam_search);
  reader.Read("length_penalty", fields.length_penalty);
  reader.Check<bool>("watermarking", kNullable);
  CheckExtraArguments(reader);
  return fields;
}

}  // namespace sluice
