// The model that the API serves: tokenizer, templates, names, limits and defaults for requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constraints/constraint_compiler.h"
#include "constraints/deferred_constraint.h"
#include "engine/engine.h"
#include "server/api/common/api_error.h"
#include "server/model_text.h"
#include "server/processed_image_cache.h"
#include "server/server_config.h"

namespace sluice {

// Thread safety: immutable once loaded. Ownership: the engine must outlive this object.
struct ModelContext : ModelText {
  // REQUIRES: `text` was loaded with the same `config`, for the engine's model.
  static std::shared_ptr<const ModelContext> Make(const ServerConfig& config, Engine* engine,
                                                  ModelText text);

  ServerConfig config;
  Engine* engine = nullptr;

  std::vector<std::string> names;  // all served names; answers show the first
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  std::vector<int32_t> end_tokens;  // end tokens of the model and of its tokenizer
  int64_t max_logprobs = 0;
  size_t max_prompt_characters = 0;  // longer texts cannot fit into max_model_len tokens
  std::string fingerprint;           // "" if there is none
  int64_t created = 0;               // Unix time in seconds

  // Compiles constraints for this model's vocabulary.
  std::unique_ptr<ConstraintCompiler> constraints;
  std::unique_ptr<const ThoughtTokens> thought_tokens;  // null without a reasoning parser
  std::unique_ptr<ProcessedImageCache> image_cache;     // caches results of this model's image
                                                        // processor

  const std::string& name() const { return names.front(); }
  // 404 for a name that is not served. Accepts "" and a served name followed by '/'. Names of
  // adapters are also served, including folders that FindAdapter finds.
  ApiStatus CheckName(const std::optional<std::string>& requested) const;
  bool IsBaseName(std::string_view name) const;
  // Returns the adapter with this name; null for a name of the model itself. Looks up an unknown
  // name in ServerConfig::lora_resolver_folder. 404 for a name that is not served, 400 for an
  // adapter that is found but cannot be loaded. The adapter may not be ready yet: see
  // StartWithAdapter. Reads files, so call it on a worker.
  ApiResult<std::shared_ptr<const AdapterUse>> FindAdapter(
      const std::optional<std::string>& requested) const;
};

// Maximum number of bytes for the processed images of requests, a part of the memory that the
// engine plans for requests. 0 for a model without images.
int64_t ImageCacheBytes(const ServerConfig& config, const EngineInfo& info, const ModelText& text);

// Returns the Unix time in whole seconds.
int64_t UnixSeconds();
// Returns `digits` random hexadecimal digits, at most 64, that cannot be guessed from earlier ones.
std::string RandomHex(int digits);

}  // namespace sluice
