// Reads generation_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Sampling defaults that the model's authors published. A request's own values take precedence.
struct GenerationConfig {
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;
  std::string unreadable;  // why the file was ignored; "" if it was read
};

class JsonFields;
// Reads bos_token_id, which is one id; in some files it is a list of one id or null.
Result<std::optional<int32_t>> ReadBosTokenId(const JsonFields& fields);

// Reads `folder`/generation_config.json. Returns the defaults if the file is absent or not a JSON
// object (see GenerationConfig::unreadable). An error names the field that has a wrong value.
Result<GenerationConfig> LoadGenerationConfig(const std::filesystem::path& folder);
Result<GenerationConfig> ParseGenerationConfig(const json::Value& config);

}  // namespace sluice
