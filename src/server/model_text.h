// The text files of a model: tokenizer, templates, defaults. They are read before the weights, so
// that errors in them are found before the weights are loaded.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/model_templates.h"
#include "checkpoint/generation_config.h"
#include "parsers/parser_table.h"
#include "receipt/receipt_issuer.h"
#include "server/server_config.h"
#include "tokenizer/tokenizer.h"
#include "vision/processor.h"

namespace sluice {

// Values for fields that a request does not set.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;  // from the model's generation_config.json
  // From --override-generation-config: the limit for every request.
  std::optional<int64_t> max_new_tokens_limit;
};

struct ModelText {
  // Reads tokenizer and templates of `model_folder`. Errors: a file that cannot be used,
  // contradictory options, or a tokenizer with more tokens than `vocab_size`.
  static Result<ModelText> Load(const ServerConfig& config,
                                const std::filesystem::path& model_folder, int64_t vocab_size,
                                const GenerationConfig& generation);

  // Whether the chat template shows the tools of a request to the model.
  bool takes_tools() const;

  std::unique_ptr<Tokenizer> tokenizer;
  ModelTemplates templates;
  json::Value special_tokens;
  json::Value default_template_kwargs;  // an object or null
  std::optional<ChatTemplate::ContentFormat> content_format;
  const ToolParser* tool_parser = nullptr;            // null: tool calls are not parsed
  const ReasoningParser* reasoning_parser = nullptr;  // null: reasoning stays in the text
  SamplingDefaults defaults;
  std::unique_ptr<const ImageProcessor> image_processor;   // null: images are refused
  std::string no_images;                                   // why images are refused, if known
  int64_t max_images = 999;                                // maximum per prompt
  std::array<uint8_t, 3> image_background{255, 255, 255};  // color shown through transparent pixels

  // The owner sets the following members after Load.
  std::shared_ptr<const ReceiptIssuer> receipts;  // null: answers have no receipt
  // Called with the path and the body of each request for an answer, on an I/O thread, so it must
  // not block. Empty: nothing is recorded.
  std::function<void(std::string_view path, std::string_view body)> on_arrival;
};

}  // namespace sluice
