#include "chat/model_templates.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/file.h"
#include "base/list_folder.h"
#include "base/model_file.h"
#include "chat/built_in_templates.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;
constexpr const char* kOthersFolder = "additional_chat_templates";

// A value that contains these characters is a template, not a file name.
bool LooksLikeTemplate(const std::string& text) {
  return text.find_first_of("{}\n") != std::string::npos;
}

using Sources = std::vector<std::pair<std::string, std::string>>;  // Pairs of name and text.

Status AddMember(const json::Value& member, const std::string& file, Sources& sources) {
  if (member.is_null()) return {};
  if (member.is_string()) {
    sources.emplace_back("default", member.as_string());
    return {};
  }
  const auto bad = [&] {
    return Fail(
        ErrorCode::kInvalidData,
        file + ": \"chat_template\" must be a string or a list of {\"name\", \"template\"} objects",
        "chat_template");
  };
  if (!member.is_array()) return bad();
  for (const json::Value& entry : member.as_array()) {
    const json::Value* name = entry.Find("name");
    const json::Value* text = entry.Find("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string())
      return bad();
    sources.emplace_back(name->as_string(), text->as_string());
  }
  return {};
}

// Returns nullopt if the file does not exist. An unreadable file is an error, because the next
// source might contain a different template.
Result<std::optional<std::string>> ReadOptional(const fs::path& folder, const char* name) {
  auto text = ReadModelFile(folder, name, kMaxFileBytes);
  if (text) return *std::move(text);
  if (text.error().code == ErrorCode::kNotFound) return std::nullopt;
  return tl::unexpected<Error>(std::move(text).error());
}

Result<Sources> ReadFolder(const fs::path& folder) {
  Sources sources;
  ASSIGN_OR_RETURN(auto own, ReadOptional(folder, "chat_template.jinja"));
  if (own) sources.emplace_back("default", *std::move(own));
  std::error_code error;
  std::vector<fs::path> others;
  for (const fs::path& path : ListFolder(folder / kOthersFolder, error)) {
    if (path.extension() == ".jinja") others.push_back(fs::path(kOthersFolder) / path.filename());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: the folder cannot be listed: {}",
                            (folder / kOthersFolder).string(), error.message()));
  }
  std::sort(others.begin(), others.end());
  for (const fs::path& path : others) {
    ASSIGN_OR_RETURN(std::string text, ReadModelFile(folder, path, kMaxFileBytes));
    sources.emplace_back(path.stem().string(), std::move(text));
  }
  return sources;
}

// Returns the value of --tokenizer-mode for the model's architecture, or "". An unreadable
// config.json is reported when the model is loaded, not here.
std::string_view ModeOfModel(const fs::path& folder) {
  const auto text = ReadOptional(folder, "config.json");
  if (!text || !*text) return "";
  const auto config = json::Parse(**text);
  const json::Value* names = config ? config->Find("architectures") : nullptr;
  if (names == nullptr || !names->is_array()) return "";
  for (const json::Value& name : names->as_array()) {
    const std::string_view mode = name.is_string() ? BuiltInTemplateOf(name.as_string()) : "";
    if (!mode.empty()) return mode;
  }
  return "";
}

}  // namespace

Result<ModelTemplates> ModelTemplates::Load(const fs::path& model_folder,
                                            const json::Value& tokenizer_config,
                                            const std::string& override_path_or_text,
                                            std::string_view tokenizer_mode) {
  ModelTemplates result;
  Sources sources;
  const auto add_built_in = [&](std::string_view mode) {
    const std::string_view text = BuiltInTemplate(mode);
    if (!sources.empty() || text.empty()) return;
    sources.emplace_back("default", text);
    result.origin_ = "built in: " + std::string(mode);
  };
  if (!override_path_or_text.empty()) {
    std::error_code error;
    if (!LooksLikeTemplate(override_path_or_text)) {
      if (!fs::exists(override_path_or_text, error)) {
        return Fail(
            ErrorCode::kInvalidArgument,
            "--chat-template: '" + override_path_or_text + "' is neither a file nor a template",
            "chat_template");
      }
      ASSIGN_OR_RETURN(std::string text, ReadFile(override_path_or_text, kMaxFileBytes));
      sources.emplace_back("default", std::move(text));
      result.origin_ = override_path_or_text;
    } else {
      sources.emplace_back("default", override_path_or_text);
      result.origin_ = "--chat-template";
    }
  }
  add_built_in(tokenizer_mode);
  if (sources.empty()) {
    ASSIGN_OR_RETURN(sources, ReadFolder(model_folder));
    if (!sources.empty()) result.origin_ = (model_folder / "chat_template.jinja").string();
  }
  if (sources.empty()) {
    const fs::path path = model_folder / "chat_template.json";
    ASSIGN_OR_RETURN(const auto text, ReadOptional(model_folder, "chat_template.json"));
    if (text) {
      auto parsed = json::Parse(*text);
      if (!parsed) return tl::unexpected<Error>(std::move(parsed).error().In(path.string()));
      if (const json::Value* member = parsed->Find("chat_template")) {
        RETURN_IF_ERROR(AddMember(*member, path.string(), sources));
      }
      result.origin_ = path.string();
    }
  }
  if (sources.empty()) {
    if (const json::Value* member = tokenizer_config.Find("chat_template")) {
      RETURN_IF_ERROR(AddMember(*member, "tokenizer_config.json", sources));
      result.origin_ = "tokenizer_config.json";
    }
  }
  if (sources.empty()) {
    result.origin_.clear();
    add_built_in(ModeOfModel(model_folder));
  }
  for (auto& [name, text] : sources) {
    const std::string title =
        name == "default" ? result.origin_ : result.origin_ + " (" + name + ")";
    ASSIGN_OR_RETURN(ChatTemplate compiled, ChatTemplate::Compile(std::move(text), title));
    result.templates_.emplace_back(name, std::move(compiled));
  }
  return result;
}

const ChatTemplate* ModelTemplates::Find(std::string_view name) const {
  for (const auto& [key, value] : templates_) {
    if (key == name) return &value;
  }
  return nullptr;
}

const ChatTemplate* ModelTemplates::Select(bool has_tools) const {
  if (has_tools) {
    if (const ChatTemplate* found = Find("tool_use")) return found;
  }
  if (const ChatTemplate* found = Find("default")) return found;
  return templates_.size() == 1 ? &templates_[0].second : nullptr;
}

}  // namespace sluice
