#include "checkpoint/generation_config.h"

#include <fmt/format.h>

#include "base/json_fields.h"
#include "base/json_file.h"

namespace sluice {

Result<std::optional<int32_t>> ReadBosTokenId(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, fields.TokenIds("bos_token_id"));
  if (ids.empty()) return std::nullopt;
  return ids.front();
}

Result<GenerationConfig> ParseGenerationConfig(const json::Value& value) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("must be a JSON object, found {}", ShortText(value)));
  }
  constexpr int64_t kMaxCount = int64_t{1} << 31;
  const JsonFields fields(value, "");
  GenerationConfig config;
  ASSIGN_OR_RETURN(config.bos_token_id, ReadBosTokenId(fields));
  ASSIGN_OR_RETURN(config.eos_token_ids, fields.TokenIds("eos_token_id"));
  ASSIGN_OR_RETURN(config.temperature, fields.Number("temperature", 0, 1e6));
  ASSIGN_OR_RETURN(config.top_p, fields.Number("top_p", 0, 1));
  ASSIGN_OR_RETURN(config.min_p, fields.Number("min_p", 0, 1));
  ASSIGN_OR_RETURN(config.repetition_penalty, fields.Number("repetition_penalty", 1e-6, 1e6));
  ASSIGN_OR_RETURN(config.top_k, fields.Integer("top_k", -1, kMaxCount));
  ASSIGN_OR_RETURN(config.max_new_tokens, fields.Integer("max_new_tokens", 1, kMaxCount));
  return config;
}

Result<GenerationConfig> LoadGenerationConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  auto value = ReadJsonObject(path);
  if (!value) {
    GenerationConfig defaults;
    if (value.error().code == ErrorCode::kNotFound) return defaults;
    if (value.error().code != ErrorCode::kInvalidData)
      return tl::unexpected<Error>(std::move(value).error());
    // transformers also ignores the file, and derives the settings from config.json.
    defaults.unreadable = value.error().message;
    return defaults;
  }
  auto config = ParseGenerationConfig(*value);
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(path.string()));
  return config;
}

}  // namespace sluice
