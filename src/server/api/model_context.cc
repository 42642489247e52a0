#include "server/api/model_context.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "chat/chat_prompt.h"
#include "constraints/xgrammar_engine.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

// FNV-1a: fingerprints only have to differ where settings differ.
uint32_t Hash(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

Result<json::Value> ParseObjectOption(const std::string& text, const std::string& option) {
  if (text.empty()) return json::Value();
  Result<json::Value> value = json::Parse(text);
  if (!value || !value->is_object()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--{} must be a JSON object, found: {}", option, text.substr(0, 80)),
                option);
  }
  return value;
}

Result<SamplingDefaults> ResolveDefaults(const ServerConfig& config,
                                         const GenerationConfig& model) {
  SamplingDefaults defaults;
  if (config.generation_config != "vllm") {
    defaults = {model.temperature, model.top_p,          model.min_p, model.repetition_penalty,
                model.top_k,       model.max_new_tokens, std::nullopt};
  }
  const std::string option = "override-generation-config";
  ASSIGN_OR_RETURN(const json::Value overrides,
                   ParseObjectOption(config.override_generation_config, option));
  if (overrides.is_null()) return defaults;
  for (const auto& [key, value] : overrides.as_object()) {
    const auto wrong = [&] {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--{}: {} must be a number, found {}", option, key, json::Write(value)),
          option);
    };
    std::optional<double>* real = key == "temperature"          ? &defaults.temperature
                                  : key == "top_p"              ? &defaults.top_p
                                  : key == "min_p"              ? &defaults.min_p
                                  : key == "repetition_penalty" ? &defaults.repetition_penalty
                                                                : nullptr;
    if (real != nullptr) {
      if (!value.is_number()) return wrong();
      *real = value.as_double();
    } else if (key == "top_k") {
      if (!value.is_integer()) return wrong();
      defaults.top_k = value.as_integer();
    } else if (key == "max_new_tokens") {
      if (!value.is_integer() || value.as_integer() < 1) return wrong();
      defaults.max_new_tokens = defaults.max_new_tokens_limit = value.as_integer();
    } else {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--{}: unknown key \"{}\"; known are temperature, top_p, top_k, min_p, "
                      "repetition_penalty, max_new_tokens",
                      option, key),
          option);
    }
  }
  return defaults;
}

constexpr int kConstraintThreads = 2;
constexpr size_t kConstraintCacheBytes = size_t{512} << 20;

// An answer ends with any of the model's end tokens, which therefore are no text.
Vocabulary VocabularyOf(const ModelContext& context) {
  Vocabulary vocabulary;
  vocabulary.size = static_cast<int32_t>(context.vocab_size);
  vocabulary.end_tokens = context.end_tokens;
  vocabulary.tokens.reserve(static_cast<size_t>(context.tokenizer->vocab_size()));
  for (int32_t id = 0; id < context.tokenizer->vocab_size(); ++id)
    vocabulary.tokens.push_back(context.tokenizer->TokenBytes(id));
  return vocabulary;
}

// The parsers that are configured; where one is not, the log says which the chat template asks for.
Status ResolveParsers(const ServerConfig& config, ModelContext& context) {
  const ChatTemplate* chat_template = context.templates.Select(/*has_tools=*/true);
  const std::string_view source =
      chat_template == nullptr ? std::string_view() : chat_template->source();
  const ToolParser* tools = SuggestToolParser(source);
  if (config.tool_call_parser == "auto") {
    if (tools == nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--tool-call-parser auto: the chat template does not show how the model writes "
                  "calls; name the parser",
                  "tool-call-parser");
    }
    context.tool_parser = tools;
    LOG_INFO("server", "--tool-call-parser auto: {}, as the chat template asks", tools->name);
  } else if (!config.tool_call_parser.empty()) {
    ASSIGN_OR_RETURN(context.tool_parser,
                     ToolParserNamed(config.tool_call_parser, "tool-call-parser"));
  } else if (tools != nullptr) {
    LOG_INFO("server", "for tool calls: --enable-auto-tool-choice --tool-call-parser {}",
             tools->name);
  }
  const ReasoningParser* reasoning = SuggestReasoningParser(source);
  if (config.reasoning_parser == "auto") {
    context.reasoning_parser = reasoning;
    LOG_INFO("server", "--reasoning-parser auto: {}",
             reasoning == nullptr ? std::string_view("none, the chat template shows no thoughts")
                                  : reasoning->name);
  } else if (!config.reasoning_parser.empty()) {
    ASSIGN_OR_RETURN(context.reasoning_parser,
                     ReasoningParserNamed(config.reasoning_parser, "reasoning-parser"));
  } else if (reasoning != nullptr) {
    LOG_INFO("server", "to tell reasoning from answers: --reasoning-parser {}", reasoning->name);
  }
  return {};
}

}  // namespace

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string RandomHex(int digits) {
  thread_local std::mt19937_64 generator{[] {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
  }()};
  std::string out;
  while (static_cast<int>(out.size()) < digits) out += fmt::format("{:016x}", generator());
  out.resize(digits);
  return out;
}

Result<std::shared_ptr<const ModelContext>> ModelContext::Load(
    const ServerConfig& config, Engine* engine, const std::filesystem::path& model_folder) {
  auto context = std::make_shared<ModelContext>();
  context->config = config;
  context->engine = engine;
  const EngineInfo& info = engine->info();
  ASSIGN_OR_RETURN(context->tokenizer, Tokenizer::Load(model_folder));
  const Tokenizer& tokenizer = *context->tokenizer;
  context->vocab_size = info.model.vocab_size;
  if (tokenizer.vocab_size() > info.model.vocab_size) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("the tokenizer of {} has {} tokens, but the model only {} rows in its "
                            "embedding (vocab_size in "
                            "config.json); take tokenizer.json and weights from the same release",
                            model_folder.string(), tokenizer.vocab_size(), info.model.vocab_size),
                "tokenizer.json");
  }
  ASSIGN_OR_RETURN(context->templates,
                   ModelTemplates::Load(model_folder, tokenizer.config(), config.chat_template));
  RETURN_IF_ERROR(ResolveParsers(config, *context));
  context->special_tokens = SpecialTokens(tokenizer.config());
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::optional<std::string> token = tokenizer.named_token(key);
    if (token && context->special_tokens.is_object() &&
        context->special_tokens.Find(key) == nullptr) {
      context->special_tokens.Set(key, *token);
    }
  }
  ASSIGN_OR_RETURN(
      context->default_template_kwargs,
      ParseObjectOption(config.default_chat_template_kwargs, "default-chat-template-kwargs"));
  if (config.chat_template_content_format == "string") {
    context->content_format = ChatTemplate::ContentFormat::kString;
  } else if (config.chat_template_content_format == "openai") {
    context->content_format = ChatTemplate::ContentFormat::kParts;
  }

  context->names = config.served_model_names;
  if (context->names.empty()) context->names.push_back(config.model_argument);
  context->max_model_len = info.max_model_len;
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
  ASSIGN_OR_RETURN(context->defaults, ResolveDefaults(config, info.generation));
  const std::string settings = fmt::format(
      "{}|{}|{}|{}|{}|{}", config.model_argument, info.max_model_len, DtypeName(info.dtype),
      DtypeName(info.kv_cache_dtype), info.isa, config.override_generation_config);
  if (config.fingerprint_mode == "custom") {
    context->fingerprint = config.fingerprint_value;
  } else if (config.fingerprint_mode != "none") {
    context->fingerprint = fmt::format("sluice-{}-{:08x}", config.version, Hash(settings));
  }
  context->created = UnixSeconds();
  context->constraints = std::make_unique<ConstraintCompiler>(
      [model = context.get()] { return MakeXgrammarEngine(VocabularyOf(*model)); },
      kConstraintThreads, kConstraintCacheBytes);
  return std::shared_ptr<const ModelContext>(std::move(context));
}

ApiStatus ModelContext::CheckName(const std::optional<std::string>& requested) const {
  if (!requested || requested->empty() || config.skip_model_name_validation) return {};
  std::string_view name = *requested;
  const auto served = [&](std::string_view candidate) {
    return std::find(names.begin(), names.end(), candidate) != names.end();
  };
  if (served(name)) return {};
  if (name.ends_with('/') && served(name.substr(0, name.size() - 1))) return {};
  ApiError error;
  error.status = 404;
  error.type = "NotFoundError";
  error.param = "model";
  error.message = fmt::format("The model `{}` does not exist.", name.substr(0, 200));
  if (names.size() > 1) error.message += fmt::format(" Valid aliases: {}.", fmt::join(names, ", "));
  return tl::unexpected<ApiError>(std::move(error));
}

}  // namespace sluice
