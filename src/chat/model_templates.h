// Finds and compiles the chat templates of a model.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chat/chat_template.h"

namespace sluice {

// The named templates of one model: "default", perhaps "tool_use" and others. Thread safety:
// immutable once loaded.
class ModelTemplates {
 public:
  // Loads from, in order of precedence: `override_path_or_text` (a file, or the template itself; ""
  // for none); the built-in template that `tokenizer_mode` names; `chat_template.jinja` and
  // `additional_chat_templates/*.jinja` in the folder; `chat_template.json`; the member
  // "chat_template" of tokenizer_config.json (a string, or a list of {"name", "template"}); and the
  // built-in template of the architecture in config.json. `tokenizer_config` is that file, parsed,
  // or null. A model without templates is not an error: empty() is true.
  static Result<ModelTemplates> Load(const std::filesystem::path& model_folder,
                                     const json::Value& tokenizer_config,
                                     const std::string& override_path_or_text,
                                     std::string_view tokenizer_mode = "auto");

  bool empty() const { return templates_.empty(); }
  // Returns "tool_use" if there are tools and the model has it; else "default"; else the only
  // template; else null.
  const ChatTemplate* Select(bool has_tools) const;
  const ChatTemplate* Find(std::string_view name) const;
  // Where the templates were found, for the log: a path, "tokenizer_config.json",
  // "--chat-template", "built in: deepseek_v4", or "".
  const std::string& origin() const { return origin_; }

 private:
  std::vector<std::pair<std::string, ChatTemplate>> templates_;
  std::string origin_;
};

}  // namespace sluice
