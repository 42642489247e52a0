#include "checkpoint/generation_config.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_fields.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{8} << 20;
constexpr std::string_view kNonFinite[] = {"-Infinity", "Infinity", "NaN"};

// With the words that Python's json writes for numbers that are not finite as strings: who reads
// such a field as a number is told of it.
std::string QuoteNonFinite(std::string_view text) {
  std::string quoted;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string) {
      const auto word = std::find_if(std::begin(kNonFinite), std::end(kNonFinite),
                                     [&](auto known) { return text.substr(i).starts_with(known); });
      if (word != std::end(kNonFinite)) {
        quoted += fmt::format("\"{}\"", *word);
        i += word->size() - 1;
        continue;
      }
    }
    quoted += text[i];
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) quoted += text[++i];
  }
  return quoted;
}

}  // namespace

Result<std::optional<int32_t>> ReadBosTokenId(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, fields.TokenIds("bos_token_id"));
  if (ids.empty()) return std::nullopt;
  return ids.front();
}

Result<json::Value> ReadJsonObject(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  auto value = json::Parse(text);
  if (!value) {
    if (auto finite = json::Parse(QuoteNonFinite(text))) value = *std::move(finite);
  }
  if (!value) {
    Error error = std::move(value).error().In(path.string());
    error.code = ErrorCode::kInvalidData;
    error.param = path.filename().string();
    return tl::unexpected<Error>(std::move(error));
  }
  if (!value->is_object()) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("{}: must be a JSON object, found {}", path.string(), ShortText(*value)),
        path.filename().string());
  }
  return *std::move(value);
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
    if (value.error().code == ErrorCode::kNotFound) return GenerationConfig{};
    return tl::unexpected<Error>(std::move(value).error());
  }
  auto config = ParseGenerationConfig(*value);
  if (!config) return tl::unexpected<Error>(std::move(config).error().In(path.string()));
  return config;
}

}  // namespace sluice
