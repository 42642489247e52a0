// The model behind the API: tokenizer, templates, names, limits and defaults for requests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/model_templates.h"
#include "constraints/constraint_compiler.h"
#include "engine/engine.h"
#include "parsers/parser_table.h"
#include "server/api/api_error.h"
#include "server/server_config.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// Values for what a request does not set.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;  // of the model's generation_config.json
  // Of --override-generation-config: no request gets more.
  std::optional<int64_t> max_new_tokens_limit;
};

// Thread safety: immutable once loaded. Ownership: the engine outlives it.
struct ModelContext {
  // Errors: a tokenizer or template that cannot be used, or that disagrees with the model.
  static Result<std::shared_ptr<const ModelContext>> Load(
      const ServerConfig& config, Engine* engine, const std::filesystem::path& model_folder);

  ServerConfig config;
  Engine* engine = nullptr;
  std::unique_ptr<Tokenizer> tokenizer;
  ModelTemplates templates;
  json::Value special_tokens;
  json::Value default_template_kwargs;  // an object or null
  std::optional<ChatTemplate::ContentFormat> content_format;
  const ToolParser* tool_parser = nullptr;            // null: tool calls are not parsed
  const ReasoningParser* reasoning_parser = nullptr;  // null: thoughts stay in the text

  std::vector<std::string> names;  // as served; answers have the first
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  std::vector<int32_t> end_tokens;  // of the model and its tokenizer
  int64_t max_logprobs = 0;
  size_t max_prompt_characters = 0;  // no longer text can fit into max_model_len tokens
  SamplingDefaults defaults;
  std::string fingerprint;  // "" for none
  int64_t created = 0;      // Unix time

  // Of this model's vocabulary.
  std::unique_ptr<ConstraintCompiler> constraints;

  const std::string& name() const { return names.front(); }
  // 404 for a name that is not served; "" and a served name with a '/' at the end are accepted.
  ApiStatus CheckName(const std::optional<std::string>& requested) const;
};

// Unix time in whole seconds.
int64_t UnixSeconds();
// `digits` random hexadecimal digits.
std::string RandomHex(int digits);

}  // namespace sluice
