#include "server/model_text.h"

#include <fmt/format.h>

#include "base/log.h"
#include "chat/chat_prompt.h"

namespace sluice {
namespace {

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

// Finds the configured parsers. If one is not configured, logs which one fits the chat template.
Status FindParsers(const ServerConfig& config, ModelText& text) {
  const ChatTemplate* chat_template = text.templates.Select(/*has_tools=*/true);
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
    text.tool_parser = tools;
    LOG_INFO("server", "--tool-call-parser auto: {}, according to the chat template", tools->name);
  } else if (!config.tool_call_parser.empty()) {
    ASSIGN_OR_RETURN(text.tool_parser,
                     ToolParserNamed(config.tool_call_parser, "tool-call-parser"));
  } else if (tools != nullptr) {
    LOG_INFO("server", "for tool calls: --enable-auto-tool-choice --tool-call-parser {}",
             tools->name);
  }
  const ReasoningParser* reasoning = SuggestReasoningParser(source);
  if (config.reasoning_parser == "auto") {
    text.reasoning_parser = reasoning;
    LOG_INFO("server", "--reasoning-parser auto: {}",
             reasoning == nullptr
                 ? std::string_view("none, the chat template contains no reasoning")
                 : reasoning->name);
  } else if (!config.reasoning_parser.empty()) {
    ASSIGN_OR_RETURN(text.reasoning_parser,
                     ReasoningParserNamed(config.reasoning_parser, "reasoning-parser"));
  } else if (reasoning != nullptr) {
    LOG_INFO("server", "to separate reasoning from answers: --reasoning-parser {}",
             reasoning->name);
  }
  return CheckParsersAgree(text.tool_parser, text.reasoning_parser);
}

// Creates the image processor if the model has one. If the processor cannot be used, the model
// serves only text; a wrong --mm-processor-kwargs is an error.
Status LoadImageProcessor(const MediaConfig& config, const std::filesystem::path& model_folder,
                          ModelText& text) {
  ASSIGN_OR_RETURN(text.max_images, MaxImagesOf(config.limits));
  ASSIGN_OR_RETURN(text.image_background, BackgroundOf(config.io_settings));
  if (config.text_only) {
    text.no_images = "the server was started with --language-model-only";
    return {};
  }
  ASSIGN_OR_RETURN(json::Value overrides,
                   ParseObjectOption(config.processor_overrides, "mm-processor-kwargs"));
  const Tokenizer* tokenizer = text.tokenizer.get();
  Result<std::unique_ptr<ImageProcessor>> processor =
      ReadProcessorFiles(config.model_folder.empty() ? model_folder.string() : config.model_folder)
          .and_then([&](ProcessorInputs inputs) {
            inputs.overrides = std::move(overrides);
            inputs.token_id = [tokenizer](std::string_view token) {
              return tokenizer->TokenToId(token);
            };
            inputs.token_text = [tokenizer](int32_t id) {
              return id < tokenizer->vocab_size() ? std::string(tokenizer->IdToToken(id))
                                                  : std::string();
            };
            return ImageProcessor::Create(inputs);
          });
  if (processor) {
    text.image_processor = *std::move(processor);
    return {};
  }
  if (processor.error().param == "mm-processor-kwargs")
    return tl::unexpected<Error>(std::move(processor).error());
  LOG_WARNING("server", "images are refused: {}", processor.error().message);
  text.no_images = processor.error().message;
  return {};
}

}  // namespace

Result<ModelText> ModelText::Load(const ServerConfig& config,
                                  const std::filesystem::path& model_folder, int64_t vocab_size,
                                  const GenerationConfig& generation) {
  ModelText text;
  ASSIGN_OR_RETURN(text.tokenizer, Tokenizer::Load(model_folder));
  const Tokenizer& tokenizer = *text.tokenizer;
  if (tokenizer.vocab_size() > vocab_size) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format(
            "the tokenizer of {} has {} tokens, but the model has only {} rows in its embedding "
            "(vocab_size in config.json); use tokenizer.json and weights of the same release",
            model_folder.string(), tokenizer.vocab_size(), vocab_size),
        "tokenizer.json");
  }
  ASSIGN_OR_RETURN(text.templates,
                   ModelTemplates::Load(model_folder, tokenizer.config(), config.chat_template,
                                        config.tokenizer_mode));
  if (text.templates.empty()) {
    LOG_WARNING("server",
                "the model has no chat template: /v1/chat/completions needs --chat-template");
  } else {
    LOG_INFO("server", "chat template from {}", text.templates.origin());
  }
  RETURN_IF_ERROR(FindParsers(config, text));
  text.special_tokens = SpecialTokens(tokenizer.config());
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::optional<std::string> token = tokenizer.named_token(key);
    if (token && text.special_tokens.is_object() && text.special_tokens.Find(key) == nullptr) {
      text.special_tokens.Set(key, *token);
    }
  }
  ASSIGN_OR_RETURN(
      text.default_template_kwargs,
      ParseObjectOption(config.default_chat_template_kwargs, "default-chat-template-kwargs"));
  if (config.chat_template_content_format == "string") {
    text.content_format = ChatTemplate::ContentFormat::kString;
  } else if (config.chat_template_content_format == "openai") {
    text.content_format = ChatTemplate::ContentFormat::kParts;
  }
  ASSIGN_OR_RETURN(text.defaults, ResolveDefaults(config, generation));
  RETURN_IF_ERROR(LoadImageProcessor(config.media, model_folder, text));
  return text;
}

bool ModelText::takes_tools() const {
  const ChatTemplate* chat_template = templates.Select(/*has_tools=*/true);
  return chat_template != nullptr && chat_template->source().find("tools") != std::string::npos;
}

}  // namespace sluice
