#include "server/api/sampling_fields.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "server/api/constraint_check.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr int64_t kMaxBeams = 64;
constexpr int64_t kMaxPattern = 4096;  // Every token costs as much work as patterns are long.
// Names that are kept with each sequence or written into each event of a stream.
constexpr size_t kMaxNameBytes = 1024;
constexpr double kSmallestTemperature = 0.01;  // Smaller ones would overflow the logits.

// Python counts booleans as integers.
std::optional<int64_t> RawInteger(const json::Value& value) {
  if (value.is_integer()) return value.as_integer();
  if (value.is_bool()) return value.as_bool() ? 1 : 0;
  return std::nullopt;
}

ApiStatus CheckCount(const json::Value& body, std::string_view name,
                     std::optional<int64_t>& count) {
  const json::Value* value = body.Find(name);
  if (value == nullptr || value->is_null()) return {};
  count = RawInteger(*value);
  if (!count)
    return BadParameter(fmt::format("`{}` must be an integer.", name), name, PythonInput(*value));
  if (*count < 0 && *count != -1) {
    return BadParameter(fmt::format("`{}` must be a positive value or -1.", name), name,
                        PythonInput(*value));
  }
  return {};
}

void ReadStop(FieldReader& reader, size_t most, std::vector<std::string>& stop) {
  const json::Value* value = reader.Raw("stop");
  if (value == nullptr) return;
  if (value->is_string()) {
    stop.push_back(value->as_string());
    return;
  }
  std::vector<FieldError> list_errors;
  FieldReader list_reader(reader.object(), "body", &list_errors);
  if (value->is_array()) {
    stop = list_reader.Strings("stop");
    const size_t count = value->as_array().size();
    if (list_errors.empty() && count > most) {
      list_reader.Add(
          "too_long", "stop",
          fmt::format("List should have at most {} items after validation, not {}", most, count),
          *value,
          fmt::format("{{'field_type': 'List', 'max_length': {}, 'actual_length': {}}}", most,
                      count));
    }
    if (list_errors.empty()) return;
  }
  reader.Add("string_type", "stop", "Input should be a valid string", *value);
  if (!value->is_array()) reader.Add("list_type", "stop", "Input should be a valid list", *value);
  for (FieldError& error : list_errors) reader.Append(std::move(error));
}

// trtllm-serve counts from 0 to 1, and more comes first.
int64_t ReadPriority(FieldReader& reader, ApiDialect dialect) {
  if (dialect != ApiDialect::kTrtllm) return reader.Int("priority", 0);
  const double priority = reader.OptionalFloat("priority").value_or(0.5);
  if (!(priority >= 0 && priority <= 1)) {
    reader.Add("value_error", "priority", "Input should be between 0 and 1",
               *reader.Raw("priority"));
    return 0;
  }
  return std::llround((0.5 - priority) * 1000);
}

void ReadRepetition(FieldReader& reader, RepetitionRule& rule) {
  const json::Value* object = reader.OptionalObject("repetition_detection", true);
  if (object == nullptr) return;
  FieldReader inner(*object, "body.repetition_detection", reader.errors());
  rule.max_size = inner.Int("max_pattern_size", 0);
  rule.min_size = inner.Int("min_pattern_size", 0);
  rule.min_count = inner.Int("min_count", 0);
}

ApiStatus CheckRepetition(const RepetitionRule& rule) {
  if (rule.max_size < 0 || rule.min_size < 0 || rule.min_size > rule.max_size) {
    return BadRequest(
        "max_pattern_size and min_pattern_size of repetition_detection must be at least 0, with "
        "min_pattern_size <= max_pattern_size; set both to 0 to switch it off.");
  }
  if (rule.max_size > 0 && rule.min_count < 2) {
    return BadRequest(
        "min_count of repetition_detection must be at least 2; set max_pattern_size to 0 to switch "
        "it off.");
  }
  if (rule.max_size > kMaxPattern || rule.min_count > kMaxPattern) {
    return BadRequest(fmt::format(
        "max_pattern_size and min_count of repetition_detection must be at most {}.", kMaxPattern));
  }
  return {};
}

// What a search by likelihood alone leaves no place for is refused.
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

ApiStatus CheckResponseFormat(const FieldReader& reader) {
  const json::Value* format = reader.Raw("response_format");
  if (format == nullptr) return {};
  std::vector<FieldError> errors;
  FieldReader checker(reader.object(), "body", &errors);
  if (!format->is_object()) {
    checker.OptionalObject("response_format", true);
    return ValidationFailed(errors);
  }
  const json::Value* type = format->Find("type");
  const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
  if (kind == "text") return {};
  if (kind == "json_schema" && !IsTruthy(format->Find("json_schema"))) {
    return BadParameter(
        "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        "response_format");
  }
  if (kind == "json_object" || kind == "json_schema" || kind == "structural_tag") {
    return BadParameter(fmt::format("response_format of type '{}' is not supported by this server; "
                                    "use 'text' or leave it out",
                                    kind),
                        "response_format");
  }
  static constexpr std::string_view kExpected = "'text', 'json_object' or 'json_schema'";
  if (type == nullptr) {
    checker.Add("missing", "response_format.type", "Field required", *format);
  } else {
    checker.Add("literal_error", "response_format.type",
                fmt::format("Input should be {}", kExpected), *type,
                fmt::format("{{'expected': {}}}", PythonRepr(kExpected)));
  }
  return ValidationFailed(errors);
}

ApiStatus CheckStructuredOutputs(const FieldReader& reader, bool is_chat) {
  const json::Value* outputs = reader.Raw("structured_outputs");
  if (outputs == nullptr) return {};
  std::vector<FieldError> errors;
  FieldReader checker(reader.object(), "body", &errors);
  if (!outputs->is_object()) {
    checker.OptionalObject("structured_outputs", true);
    return ValidationFailed(errors);
  }
  std::vector<std::string> kinds;
  for (const char* kind : {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}) {
    if (outputs->Find(kind) != nullptr && !outputs->Find(kind)->is_null()) kinds.push_back(kind);
  }
  if (kinds.empty()) {
    return BadRequest(
        "You must use one kind of structured outputs constraint but none are specified: " +
        json::Write(*outputs));
  }
  if (kinds.size() > 1) {
    static constexpr std::string_view kMessage =
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        "'choice').";
    if (is_chat) return BadRequest(std::string(kMessage));
    return BadParameter(kMessage, "structured_outputs");
  }
  if (kinds[0] == "choice" && !IsTruthy(outputs->Find("choice")))
    return BadRequest("Choice '[]' cannot be an empty list");
  const json::Value* regex = outputs->Find("regex");
  if (regex != nullptr && regex->is_string()) {
    if (const auto mistake = RegexMistake(regex->as_string()))
      return BadRequest("structured_outputs.regex: invalid regex: " + *mistake);
  }
  const json::Value* grammar = outputs->Find("grammar");
  if (grammar != nullptr && grammar->is_string()) {
    if (const auto mistake = GrammarMistake(grammar->as_string()))
      return BadRequest("structured_outputs.grammar: Invalid grammar specification: " + *mistake);
  }
  return Unsupported("constrained output", "structured_outputs");
}

ApiStatus CheckIds(const std::vector<int64_t>& ids, std::string_view name, int64_t vocab_size) {
  std::vector<int64_t> outside;
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size) outside.push_back(id);
  }
  if (outside.empty()) return {};
  if (outside.size() > 20) outside.resize(20);
  const std::string list = PythonRepr(outside);
  return BadParameter(
      fmt::format("token_id(s) {} in {} contain out-of-vocab token ids. Vocabulary size: {}", list,
                  name, vocab_size),
      name, list);
}

// Each once, so that a list is never longer than the vocabulary. REQUIRES: they are in it.
std::vector<int32_t> DistinctIds(const std::vector<int64_t>& ids) {
  std::vector<int32_t> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  distinct.shrink_to_fit();
  return distinct;
}

ApiStatus ResolveLogitBias(const SamplingFields& fields, const ModelContext& model,
                           SamplingParams& params) {
  std::vector<std::string> unreadable;
  std::vector<int64_t> ids;
  for (const auto& [key, bias] : fields.logit_bias) {
    const std::optional<int64_t> id = PythonInt(key);
    if (id) {
      ids.push_back(*id);
    } else {
      unreadable.push_back(key);
    }
    if (std::isnan(bias))
      return BadParameter("logit_bias must hold numbers, got nan.", "logit_bias");
  }
  if (!unreadable.empty()) {
    if (unreadable.size() > 20) unreadable.resize(20);
    const std::string list = PythonRepr(unreadable);
    return BadParameter(
        fmt::format("logit_bias contains key(s) that cannot be converted to integer token IDs: {}",
                    list),
        "logit_bias", list);
  }
  API_RETURN_IF_ERROR(CheckIds(ids, "logit_bias", model.vocab_size));
  // "7" and "07" are one token: the later one counts, as in Python's dict.
  std::vector<std::pair<int32_t, float>> biases;
  std::unordered_map<int64_t, size_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto bias = static_cast<float>(std::clamp(fields.logit_bias[i].second, -100.0, 100.0));
    const auto [place, added] = places.emplace(ids[i], biases.size());
    if (added) {
      biases.emplace_back(static_cast<int32_t>(ids[i]), bias);
    } else {
      biases[place->second].second = bias;
    }
  }
  params.logit_bias = std::move(biases);
  return {};
}

// Words become token sequences both as they start a text and as they stand behind a blank.
ApiStatus ResolveBadWords(const SamplingFields& fields, const ModelContext& model,
                          SamplingParams& params) {
  if (fields.bad_words.size() > static_cast<size_t>(model.config.max_bad_words)) {
    return BadParameter(fmt::format("bad_words holds {} words, at most {} are taken",
                                    fields.bad_words.size(), model.config.max_bad_words),
                        "bad_words");
  }
  std::vector<std::vector<int32_t>> words;
  for (const std::string& word : fields.bad_words) {
    if (word.empty()) {
      return BadRequest("bad_words cannot contain an empty string. Got bad_words=" +
                        PythonRepr(fields.bad_words));
    }
    const size_t start = word.find_first_not_of(" \t\n\r");
    const std::string text = start == std::string::npos ? "" : word.substr(start);
    std::vector<int32_t> plain = model.tokenizer->Encode(text, false);
    std::vector<int32_t> spaced = model.tokenizer->Encode(" " + text, false);
    const bool differs = !plain.empty() && spaced.size() == plain.size() && spaced[0] != plain[0];
    if (!plain.empty()) words.push_back(std::move(plain));
    if (differs) words.push_back(std::move(spaced));
  }
  params.bad_words = std::move(words);
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

}  // namespace

ApiStatus CheckNameLength(std::string_view field, std::string_view value) {
  if (value.size() <= kMaxNameBytes) return {};
  return BadParameter(
      fmt::format("{} must have at most {} bytes, got {}", field, kMaxNameBytes, value.size()),
      field);
}

ApiStatus CheckRawFields(const json::Value& body, bool is_chat) {
  std::optional<int64_t> prompt_logprobs;
  API_RETURN_IF_ERROR(CheckCount(body, "prompt_logprobs", prompt_logprobs));
  if (prompt_logprobs && *prompt_logprobs != 0 && IsTruthy(body.Find("stream"))) {
    return BadParameter("`prompt_logprobs` are not available when `stream=True`.",
                        "prompt_logprobs");
  }
  std::optional<int64_t> logprobs;
  API_RETURN_IF_ERROR(CheckCount(body, is_chat ? "top_logprobs" : "logprobs", logprobs));
  if (is_chat && logprobs && *logprobs != 0 && !IsTruthy(body.Find("logprobs"))) {
    return BadParameter("when using `top_logprobs`, `logprobs` must be set to true.",
                        "top_logprobs");
  }
  if (IsTruthy(body.Find("logprob_token_ids"))) {
    const json::Value* value = body.Find("logprobs");
    if (is_chat ? !IsTruthy(value) : value == nullptr || value->is_null()) {
      return BadParameter(fmt::format("when using `logprob_token_ids`, `logprobs` must be set{}.",
                                      is_chat ? " to true" : ""),
                          "logprob_token_ids");
    }
  }
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
  SamplingFields fields;
  IntRange seed_range;
  seed_range.bounded = true;
  fields.model = reader.OptionalString("model");
  reader.OptionalString("user");
  reader.OptionalString("suffix");
  fields.n = reader.Int("n", 1);
  fields.presence_penalty = reader.OptionalFloat("presence_penalty").value_or(0);
  fields.frequency_penalty = reader.OptionalFloat("frequency_penalty").value_or(0);
  fields.temperature = reader.OptionalFloat("temperature");
  fields.top_p = reader.OptionalFloat("top_p");
  fields.top_k = reader.OptionalInt("top_k");
  fields.min_p = reader.OptionalFloat("min_p");
  fields.repetition_penalty = reader.OptionalFloat("repetition_penalty");
  fields.seed = reader.OptionalInt("seed", seed_range);
  ReadStop(reader, static_cast<size_t>(config.max_stop_strings), fields.stop);
  fields.stop_token_ids = reader.OptionalInts("stop_token_ids").value_or(std::vector<int64_t>{});
  fields.include_stop_str_in_output = reader.Bool("include_stop_str_in_output", false);
  fields.ignore_eos = reader.Bool("ignore_eos", false);
  fields.min_tokens = reader.Int("min_tokens", 0);
  fields.prompt_logprobs = reader.OptionalInt("prompt_logprobs");
  fields.logit_bias = reader.OptionalFloatMap("logit_bias").value_or(decltype(fields.logit_bias){});
  fields.allowed_token_ids = reader.OptionalInts("allowed_token_ids");
  fields.bad_words = reader.Strings("bad_words");
  fields.skip_special_tokens = reader.Bool("skip_special_tokens", true);
  reader.Bool("spaces_between_special_tokens", true);
  fields.truncate_prompt_tokens = reader.OptionalInt("truncate_prompt_tokens", {.min = -1});
  fields.truncation_side =
      reader.OptionalChoice("truncation_side", {"left", "right"}, "'left' or 'right'");
  fields.priority = ReadPriority(reader, config.dialect);
  fields.cache_salt = reader.OptionalString("cache_salt").value_or("");
  fields.request_id = reader.OptionalString("request_id");
  fields.stream = reader.OptionalBool("stream").value_or(false);
  if (const json::Value* options = reader.OptionalObject("stream_options", true)) {
    FieldReader inner(*options, "body.stream_options", reader.errors());
    fields.include_usage =
        inner.OptionalBool("include_usage").value_or(config.dialect == ApiDialect::kTrtllm);
    fields.continuous_usage_stats =
        inner.OptionalBool("continuous_usage_stats").value_or(false) && fields.include_usage;
  }
  if (config.enable_force_include_usage)
    fields.include_usage = fields.continuous_usage_stats = true;
  fields.stream_interval =
      reader.OptionalInt("stream_interval", {.min = 1}).value_or(config.stream_interval);
  fields.return_token_ids = reader.OptionalBool("return_token_ids").value_or(false);
  fields.return_tokens_as_token_ids =
      reader.OptionalBool("return_tokens_as_token_ids").value_or(config.return_tokens_as_token_ids);
  ReadRepetition(reader, fields.repetition);
  fields.use_beam_search = reader.Bool("use_beam_search", false);
  fields.length_penalty = reader.Float("length_penalty", 1.0);
  reader.OptionalBool("watermarking");
  if (const json::Value* extra = reader.OptionalObject("vllm_xargs")) {
    for (const auto& [key, value] : extra->as_object()) {
      if (value.is_object() || value.is_null()) {
        reader.Add("string_type", "vllm_xargs." + key, "Input should be a valid string", value);
      }
    }
  }
  return fields;
}

ApiStatus RefuseUnsupported(const FieldReader& reader, bool is_chat) {
  API_RETURN_IF_ERROR(CheckResponseFormat(reader));
  API_RETURN_IF_ERROR(CheckStructuredOutputs(reader, is_chat));
  if (!is_chat && IsTruthy(reader.Raw("use_beam_search")) && IsTruthy(reader.Raw("stream")))
    return BadRequest("Streaming is not currently supported with beam search");
  if (reader.Raw("thinking_token_budget") != nullptr) {
    return BadRequest(
        "thinking_token_budget is set but no reasoning parser is configured; leave "
        "`thinking_token_budget` out");
  }
  if (reader.Raw("logprob_token_ids") != nullptr) {
    return Unsupported("logprobs of chosen token ids", "logprob_token_ids");
  }
  if (IsTruthy(reader.Raw("watermarking"))) return Unsupported("watermarking", "watermarking");
  for (const char* name : {"kv_transfer_params", "ec_transfer_params"}) {
    const json::Value* params = reader.Raw(name);
    if (params == nullptr || !params->is_object()) continue;
    for (const auto& [key, value] : params->as_object()) {
      if (IsTruthy(&value)) return Unsupported("moving a cache between servers", name);
    }
  }
  return {};
}

namespace {

LogprobsMode LogprobsModeOf(std::string_view name) {
  if (name == "processed_logprobs") return LogprobsMode::kProcessedLogprobs;
  if (name == "raw_logits") return LogprobsMode::kRawLogits;
  if (name == "processed_logits") return LogprobsMode::kProcessedLogits;
  return LogprobsMode::kRawLogprobs;
}

}  // namespace

ApiResult<SamplingParams> ResolveSampling(const SamplingFields& fields, const ModelContext& model) {
  SamplingParams params;
  params.logprobs_mode = LogprobsModeOf(model.config.logprobs_mode);
  const SamplingDefaults& defaults = model.defaults;
  if (fields.request_id) API_RETURN_IF_ERROR(CheckNameLength("request_id", *fields.request_id));
  API_RETURN_IF_ERROR(CheckNameLength("cache_salt", fields.cache_salt));
  if (fields.n < 1) return BadRequest(fmt::format("n must be at least 1, got {}.", fields.n));
  if (fields.n > model.config.max_n) {
    return BadRequest(fmt::format(
        "n must be at most {}, got {}. To increase this limit, set the VLLM_MAX_N_SEQUENCES "
        "environment variable.",
        model.config.max_n, fields.n));
  }
  const auto penalty = [](std::string_view name, double value) -> ApiStatus {
    if (value >= -2 && value <= 2) return {};
    return BadRequest(fmt::format("{} must be in [-2, 2], got {}.", name, PythonFloat(value)));
  };
  API_RETURN_IF_ERROR(penalty("presence_penalty", fields.presence_penalty));
  API_RETURN_IF_ERROR(penalty("frequency_penalty", fields.frequency_penalty));
  params.presence_penalty = fields.presence_penalty;
  params.frequency_penalty = fields.frequency_penalty;
  params.repetition_penalty =
      fields.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1.0));
  if (!(params.repetition_penalty > 0) || std::isinf(params.repetition_penalty)) {
    return BadRequest(fmt::format("repetition_penalty must be greater than zero, got {}.",
                                  PythonFloat(params.repetition_penalty)));
  }

  params.temperature = fields.temperature.value_or(defaults.temperature.value_or(1.0));
  const std::string temperature = PythonFloat(params.temperature);
  if (!std::isfinite(params.temperature)) {
    return BadParameter(fmt::format("temperature must be a finite number, got {}.", temperature),
                        "temperature", temperature);
  }
  if (params.temperature < 0) {
    return BadParameter(fmt::format("temperature must be non-negative, got {}.", temperature),
                        "temperature", temperature);
  }
  if (params.temperature > 2) {
    return BadParameter(fmt::format("temperature must be in [0, 2], got {}.", temperature),
                        "temperature", temperature);
  }
  params.top_p = fields.top_p.value_or(defaults.top_p.value_or(1.0));
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    const std::string top_p = PythonFloat(params.top_p);
    return BadParameter(fmt::format("top_p must be in (0, 1], got {}.", top_p), "top_p", top_p);
  }
  params.top_k = fields.top_k.value_or(defaults.top_k.value_or(0));
  if (params.top_k < -1) {
    return BadRequest(
        fmt::format("top_k must be 0 (disable), or at least 1, got {}.", params.top_k));
  }
  params.top_k = std::max<int64_t>(params.top_k, 0);
  params.min_p = fields.min_p.value_or(defaults.min_p.value_or(0.0));
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return BadRequest(fmt::format("min_p must be in [0, 1], got {}.", PythonFloat(params.min_p)));
  }
  if (fields.min_tokens < 0) {
    return BadRequest(
        fmt::format("min_tokens must be greater than or equal to 0, got {}.", fields.min_tokens));
  }
  for (const std::string& text : fields.stop) {
    if (text.empty()) return BadRequest("stop cannot contain an empty string.");
  }
  if (params.temperature == 0) {
    if (fields.n > 1 && !fields.use_beam_search)
      return BadRequest(fmt::format("n must be 1 when using greedy sampling, got {}.", fields.n));
    params.top_p = 1;
    params.top_k = 0;
    params.min_p = 0;
  } else {
    params.temperature = std::max(params.temperature, kSmallestTemperature);
  }
  if (fields.seed && *fields.seed != -1) params.seed = fields.seed;

  if (fields.logprobs) {
    API_ASSIGN_OR_RETURN(params.logprobs,
                         ResolveLogprobs(*fields.logprobs, "sample", "logprobs", model));
  }
  if (fields.prompt_logprobs) {
    API_ASSIGN_OR_RETURN(params.prompt_logprobs, ResolveLogprobs(*fields.prompt_logprobs, "prompt",
                                                                 "prompt_logprobs", model));
  }
  API_RETURN_IF_ERROR(ResolveLogitBias(fields, model, params));
  API_RETURN_IF_ERROR(CheckIds(fields.stop_token_ids, "stop_token_ids", model.vocab_size));
  params.stop_token_ids = DistinctIds(fields.stop_token_ids);
  if (fields.allowed_token_ids) {
    const std::vector<int64_t>& allowed = *fields.allowed_token_ids;
    if (allowed.empty()) {
      return BadParameter("allowed_token_ids is not None and empty!", "allowed_token_ids", "[]");
    }
    for (const int64_t id : allowed) {
      if (id < 0 || id >= model.vocab_size) {
        return BadParameter(
            "allowed_token_ids contains out-of-vocab token id!", "allowed_token_ids",
            PythonRepr(std::span(allowed).first(std::min<size_t>(allowed.size(), 20))));
      }
    }
    params.allowed_token_ids = DistinctIds(allowed);
  }
  API_RETURN_IF_ERROR(ResolveBadWords(fields, model, params));
  API_RETURN_IF_ERROR(CheckRepetition(fields.repetition));
  if (fields.use_beam_search) API_RETURN_IF_ERROR(CheckBeamSearch(fields));
  params.ignore_eos = fields.ignore_eos;
  params.min_tokens = fields.min_tokens;

  if (fields.max_tokens && *fields.max_tokens > model.max_model_len) {
    return BadParameter(
        fmt::format(
            "{}={} cannot be greater than max_model_len={}. Please request fewer output tokens.",
            fields.max_tokens_name, *fields.max_tokens, model.max_model_len),
        fields.max_tokens_name, std::to_string(*fields.max_tokens));
  }
  if (fields.truncate_prompt_tokens && *fields.truncate_prompt_tokens > model.max_model_len) {
    return BadParameter(fmt::format("truncate_prompt_tokens={} cannot be greater than "
                                    "max_model_len = {}. Please request a smaller "
                                    "truncation size.",
                                    *fields.truncate_prompt_tokens, model.max_model_len),
                        "truncate_prompt_tokens", std::to_string(*fields.truncate_prompt_tokens));
  }
  return params;
}

ApiResult<int64_t> ResolveMaxTokens(const SamplingFields& fields, const ModelContext& model,
                                    int64_t prompt_tokens) {
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
