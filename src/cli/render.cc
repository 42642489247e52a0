#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "base/file.h"
#include "base/model_file.h"
#include "chat/chat_prompt.h"
#include "chat/model_templates.h"
#include "chat/render_tool.h"
#include "cli/command.h"
#include "cli/configs.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxConfigBytes = 64 << 20;

// Reads a JSON file from a model folder; null if it does not exist.
Result<json::Value> ReadOptionalJson(const std::filesystem::path& folder, const char* name) {
  const auto text = ReadModelFile(folder, name, kMaxConfigBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return json::Value();
  if (!text) return tl::unexpected<Error>(text.error());
  auto value = json::Parse(*text);
  if (!value) return tl::unexpected<Error>(std::move(value).error().In((folder / name).string()));
  return value;
}

}  // namespace

Result<int> RunRenderCommand(const options::Settings& settings) {
  RenderOptions render;
  if (const auto now = settings.Text("now")) {
    ASSIGN_OR_RETURN(render.now, ParseCivilTime(*now));
  }
  std::ios::sync_with_stdio(false);
  if (const auto file = settings.Text("template")) {
    ASSIGN_OR_RETURN(std::string source, ReadFile(*file, kMaxConfigBytes));
    RETURN_IF_ERROR(RunRender(ChatTemplate::Compile(std::move(source), *file), render,
                              json::Value(json::Value::Object{}), std::cin, std::cout));
    std::cout.flush();
    return 0;
  }
  if (!HasModelArgument(settings)) {
    return Fail(ErrorCode::kInvalidArgument,
                "which template? Give --template FILE or --model MODEL", "template");
  }
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, ModelPart::kTokenizer));
  ASSIGN_OR_RETURN(const json::Value config,
                   ReadOptionalJson(model.folder, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const json::Value special,
                   ReadOptionalJson(model.folder, "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const ModelTemplates templates, ModelTemplates::Load(model.folder, config, ""));
  const ChatTemplate* chat_template = templates.Select(/*has_tools=*/false);
  if (chat_template == nullptr) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} has no chat template: give one with --template", model.name));
  }
  RETURN_IF_ERROR(
      RunRender(*chat_template, render, SpecialTokens(config, special), std::cin, std::cout));
  std::cout.flush();
  return 0;
}

}  // namespace sluice::cli
