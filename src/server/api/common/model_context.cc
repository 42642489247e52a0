#include "server/api/common/model_context.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/log.h"
#include "constraints/xgrammar_engine.h"
#include "engine/adapters.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

// Computes FNV-1a: fingerprints only have to differ if the settings differ.
uint32_t Hash(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

constexpr int kConstraintThreads = 2;
constexpr size_t kConstraintCacheBytes = size_t{512} << 20;

// Returns the vocabulary for constraints. Each of the model's end tokens ends an answer, so none of
// them counts as text.
Vocabulary VocabularyOf(const ModelContext& context) {
  Vocabulary vocabulary;
  vocabulary.size = static_cast<int32_t>(context.vocab_size);
  vocabulary.end_tokens = context.end_tokens;
  vocabulary.tokens.reserve(static_cast<size_t>(context.tokenizer->vocab_size()));
  for (int32_t id = 0; id < context.tokenizer->vocab_size(); ++id)
    vocabulary.tokens.push_back(context.tokenizer->TokenBytes(id));
  return vocabulary;
}

// Returns the marks of `parser` as tokens of the model. Calls in channels end with their own token.
std::unique_ptr<const ThoughtTokens> ThoughtTokensOf(const ModelContext& context,
                                                     const ReasoningParser& parser) {
  const Tokenizer* const tokenizer = context.tokenizer.get();
  std::vector<int32_t> call_ends;
  ThoughtMarks::Messages messages;
  if (parser.channels != nullptr) {
    messages = {.begin = {"<|start|>", "<|channel|>"},
                .end = {"<|end|>"},
                .text = "<|message|>",
                .recipient = "to=functions."};
    if (const auto id = tokenizer->TokenToId("<|call|>")) call_ends.push_back(*id);
  }
  const ReasoningFormat& format = parser.format;
  return std::make_unique<const ThoughtTokens>(
      ThoughtMarks{format.start, format.end, format.before_end, std::move(messages)},
      tokenizer->vocab_size(), [tokenizer](int32_t token) { return tokenizer->TokenBytes(token); },
      context.end_tokens, std::move(call_ends));
}

}  // namespace

int64_t ImageCacheBytes(const ServerConfig& config, const EngineInfo& info, const ModelText& text) {
  if (text.image_processor == nullptr || !info.takes_images) return 0;
  return std::min(config.media.cache_bytes, info.request_memory_bytes / 4);
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string RandomHex(int digits) {
  // Uses a cryptographic generator: the numbers of other generators can be predicted from earlier
  // ones.
  std::array<unsigned char, 32> bytes{};
  CHECK(digits <= 2 * std::ssize(bytes) &&
            RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1,
        "no random bytes");
  std::string out = HexDigits(bytes);
  out.resize(static_cast<size_t>(digits));
  return out;
}

std::shared_ptr<const ModelContext> ModelContext::Make(const ServerConfig& config, Engine* engine,
                                                       ModelText text) {
  auto context = std::make_shared<ModelContext>();
  static_cast<ModelText&>(*context) = std::move(text);
  context->config = config;
  context->engine = engine;
  const EngineInfo& info = engine->info();
  const Tokenizer& tokenizer = *context->tokenizer;
  context->vocab_size = info.model.vocab_size;
  context->names = config.served_model_names;
  if (context->names.empty()) context->names.push_back(config.model_argument);
  context->max_model_len = info.max_model_len;
  if (config.enable_prompt_embeds && info.prompt_row_width == 0)
    LOG_WARNING("server", "--enable-prompt-embeds has no effect: {}", info.no_prompt_rows);
  context->end_tokens = info.end_tokens;
  if (const auto eos = tokenizer.eos_token()) {
    if (const auto id = tokenizer.TokenToId(*eos)) context->end_tokens.push_back(*id);
  }
  context->max_logprobs = config.max_logprobs < 0 ? info.model.vocab_size : config.max_logprobs;
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, CountCharacters(tokenizer.IdToToken(id)));
  }
  context->max_prompt_characters = longest * static_cast<size_t>(info.max_model_len);
  const std::string settings = fmt::format(
      "{}|{}|{}|{}|{}|{}", config.model_argument, info.max_model_len, DtypeName(info.dtype),
      DtypeName(info.kv_cache_dtype), info.isa, config.override_generation_config);
  if (config.fingerprint_mode == "custom") {
    context->fingerprint = config.fingerprint_value;
  } else if (config.fingerprint_mode != "none") {
    context->fingerprint = fmt::format("sluice-{}-{:08x}", config.version, Hash(settings));
  }
  if (!config.simulated.empty()) context->fingerprint = "simulated-" + config.simulated;
  context->created = UnixSeconds();
  context->constraints = std::make_unique<ConstraintCompiler>(
      [model = context.get()] { return MakeXgrammarEngine(VocabularyOf(*model)); },
      kConstraintThreads, kConstraintCacheBytes);
  context->image_cache =
      std::make_unique<ProcessedImageCache>(ImageCacheBytes(config, info, *context));
  if (context->reasoning_parser != nullptr)
    context->thought_tokens = ThoughtTokensOf(*context, *context->reasoning_parser);
  return context;
}

namespace {

// Returns the folder of the adapter `name` below `folder`; nullopt if there is none. A name cannot
// lead out of `folder`.
std::optional<std::filesystem::path> ResolveAdapter(const std::string& folder,
                                                    const std::string& name) {
  constexpr size_t kMaxNameBytes = 256;
  if (folder.empty() || name.size() > kMaxNameBytes || name.find('\0') != std::string::npos)
    return std::nullopt;
  const std::filesystem::path relative(name);
  if (!relative.is_relative()) return std::nullopt;
  for (const std::filesystem::path& part : relative) {
    if (part.empty() || part == "." || part == "..") return std::nullopt;
  }
  std::filesystem::path found = std::filesystem::path(folder) / relative;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(found / "adapter_config.json", ignored))
    return std::nullopt;
  return found;
}

}  // namespace

bool ModelContext::IsBaseName(std::string_view name) const {
  const auto served = [&](std::string_view candidate) {
    return std::find(names.begin(), names.end(), candidate) != names.end();
  };
  return served(name) || (name.ends_with('/') && served(name.substr(0, name.size() - 1)));
}

ApiStatus ModelContext::CheckName(const std::optional<std::string>& requested) const {
  if (!requested || requested->empty() || config.skip_model_name_validation) return {};
  const std::string_view name = *requested;
  const Adapters* const adapters = engine->adapters();
  if (IsBaseName(name)) return {};
  if (adapters != nullptr &&
      (adapters->Has(name) || ResolveAdapter(config.lora_resolver_folder, *requested))) {
    return {};
  }
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.param = "model";
  error.message = fmt::format("The model `{}` does not exist.", name.substr(0, 200));
  error.message += fmt::format(" {}: {}.", names.size() > 1 ? "Valid aliases" : "This server has",
                               fmt::join(names, ", "));
  if (adapters != nullptr) {
    std::vector<std::string> known;
    for (AdapterSource& source : adapters->List()) known.push_back(std::move(source.name));
    if (!known.empty()) error.message += fmt::format(" LoRA adapters: {}.", fmt::join(known, ", "));
  }
  return tl::unexpected<ApiError>(std::move(error));
}

ApiResult<std::shared_ptr<const AdapterUse>> ModelContext::FindAdapter(
    const std::optional<std::string>& requested) const {
  Adapters* const adapters = engine->adapters();
  if (adapters == nullptr || !requested || requested->empty() || IsBaseName(*requested)) {
    API_RETURN_IF_ERROR(CheckName(requested));
    return nullptr;
  }
  const std::string& name = *requested;
  if (!adapters->Has(name)) {
    if (const auto path = ResolveAdapter(config.lora_resolver_folder, name)) {
      const Status added = adapters->Add({.name = name, .path = *path, .base = ""}, false);
      // Another request may have added the adapter meanwhile.
      if (!added && !adapters->Has(name)) {
        LOG_WARNING("server", "LoRA adapter '{}' was found but could not be loaded: {}", name,
                    added.error().message);
        return BadRequest(
            fmt::format("LoRA adapter '{}' was found but could not be loaded.", name));
      }
    }
  }
  if (!adapters->Has(name)) {
    API_RETURN_IF_ERROR(CheckName(requested));
    return nullptr;
  }
  auto use = adapters->Acquire(name);
  if (!use) return tl::unexpected<ApiError>(FromError(use.error()));
  return *std::move(use);
}

}  // namespace sluice
