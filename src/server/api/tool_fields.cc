#include "server/api/tool_fields.h"

#include <fmt/format.h>

namespace sluice {
namespace {

// The name in {"function": {"name": ...}}; null if there is none.
const json::Value* FunctionName(const json::Value& described) {
  const json::Value* function = described.Find("function");
  const json::Value* name = function == nullptr ? nullptr : function->Find("name");
  return name == nullptr || !name->is_string() ? nullptr : name;
}

bool Describes(const json::Value& tools, const json::Value& name) {
  if (!tools.is_array()) return false;
  for (const json::Value& tool : tools.as_array()) {
    const json::Value* found = FunctionName(tool);
    if (found != nullptr && *found == name) return true;
  }
  return false;
}

}  // namespace

ApiStatus CheckToolChoice(const json::Value& body) {
  const json::Value* tools = Given(body, "tools");
  const json::Value* choice = Given(body, "tool_choice");
  if (choice != nullptr && choice->is_object() && Given(body, "structured_outputs") != nullptr) {
    return BadRequest(
        "You can only either use constraints for structured outputs or tools, not both.");
  }
  if (tools != nullptr && tools->is_array() && tools->as_array().empty()) {
    return BadParameter(
        "`tools` must not be an empty array. Either provide at least one tool or omit the field "
        "entirely.",
        "tools");
  }
  if (choice == nullptr || *choice == json::Value("none")) return {};
  if (tools == nullptr)
    return BadParameter("When using `tool_choice`, `tools` must be set.", "tool_choice");
  if (*choice == json::Value("auto") || *choice == json::Value("required")) return {};
  if (!choice->is_object()) {
    return BadParameter(
        fmt::format("`tool_choice` must be \"none\", \"auto\", \"required\" or an object with "
                    "`function.name`, found {}",
                    Describe(*choice)),
        "tool_choice");
  }
  const json::Value* name = FunctionName(*choice);
  if (name == nullptr) {
    return BadParameter(
        R"(a named `tool_choice` must be {"type": "function", "function": {"name": "..."}})",
        "tool_choice.function");
  }
  if (Describes(*tools, *name)) return {};
  return BadParameter(
      "The tool specified in `tool_choice` does not match any of the specified `tools`",
      "tool_choice");
}

ToolFields ReadToolFields(FieldReader& reader, bool has_tools,
                          std::string (*name_of)(const json::Value& choice)) {
  ToolFields fields;
  reader.Read("parallel_tool_calls", fields.parallel, {.nullable = true});
  if (!has_tools) return fields;
  const json::Value* choice = reader.Raw("tool_choice");
  if (choice == nullptr) {
    // As in vLLM, a null is no choice at all, not the default.
    const bool absent = reader.object().Find("tool_choice") == nullptr;
    fields.choice = absent ? ToolChoice::kAuto : ToolChoice::kNone;
  } else if (*choice == json::Value("auto")) {
    fields.choice = ToolChoice::kAuto;
  } else if (*choice == json::Value("required")) {
    fields.choice = ToolChoice::kRequired;
  } else if (choice->is_object()) {
    fields.choice = ToolChoice::kNamed;
    fields.name = name_of(*choice);
  }
  return fields;
}

ToolFields ReadChatToolFields(FieldReader& reader) {
  return ReadToolFields(reader, reader.Raw("tools") != nullptr, [](const json::Value& choice) {
    return FunctionName(choice)->as_string();
  });
}

ApiStatus CheckToolSupport(const ToolFields& tools, const ServerConfig& config,
                           bool model_takes_tools) {
  const bool parses = !config.tool_call_parser.empty();
  const bool decides = config.enable_auto_tool_choice || config.dialect == ApiDialect::kTrtllm;
  if (tools.choice == ToolChoice::kNone) return {};
  if (!parses && !model_takes_tools) {
    return BadRequest(
        "Tools are not supported: the chat template of this model does not show them to it. Serve "
        "a model that was trained to call tools, or give a template that shows them with "
        "--chat-template.");
  }
  if (tools.choice == ToolChoice::kAuto) {
    if (parses && decides) return {};
    return BadRequest(
        R"("auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set)");
  }
  if (parses) return {};
  if (tools.choice == ToolChoice::kRequired)
    return BadRequest(R"(tool_choice="required" requires --tool-call-parser to be set)");
  return BadRequest(fmt::format(
      R"(tool_choice=function "{}" requires --tool-call-parser to be set)", tools.name));
}

}  // namespace sluice
