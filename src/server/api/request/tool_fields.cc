#include "server/api/request/tool_fields.h"

#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/api/request/response_tools.h"

namespace sluice {
namespace {

// Returns the name in {"function": {"name": ...}}; null if there is none.
const json::Value* FunctionName(const json::Value& described) {
  const json::Value* function = described.Find("function");
  const json::Value* name = function == nullptr ? nullptr : function->Find("name");
  return name == nullptr || !name->is_string() ? nullptr : name;
}

// Mistral's API uses "any" instead of "required".
bool IsRequired(const json::Value& choice) {
  return choice == json::Value("required") || choice == json::Value("any");
}

bool Describes(const json::Value& tools, const json::Value& name) {
  if (!tools.is_array()) return false;
  for (const json::Value& tool : tools.as_array()) {
    const json::Value* found = FunctionName(tool);
    if (found != nullptr && *found == name) return true;
  }
  return false;
}

// Returns the function's name in an entry of allowed_tools, in the form of a chat or of a response.
json::Value AllowedName(const json::Value& entry) {
  if (const json::Value* name = FunctionName(entry)) return *name;
  return json::Value(FlatName(TextAt(entry, "namespace"), TextAt(entry, "name")));
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
  if (*choice == json::Value("auto") || IsRequired(*choice)) return {};
  if (!choice->is_object()) {
    return BadParameter(
        fmt::format(
            "`tool_choice` must be \"none\", \"auto\", \"required\", \"any\" or an object with "
            "`function.name`, found {}",
            Describe(*choice)),
        "tool_choice");
  }
  if (const json::Value* allowed = AllowedTools(choice)) return CheckAllowedTools(*allowed, *tools);
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

const json::Value* AllowedTools(const json::Value* choice) {
  if (choice == nullptr || TextAt(*choice, "type") != "allowed_tools") return nullptr;
  const json::Value* inner = choice->Find("allowed_tools");
  return inner == nullptr ? choice : inner;
}

ApiStatus CheckAllowedTools(const json::Value& allowed, const json::Value& tools) {
  const std::string mode = TextAt(allowed, "mode");
  if (mode != "auto" && mode != "required") {
    const json::Value* found = allowed.Find("mode");
    return BadParameter(
        fmt::format(R"(`mode` of `allowed_tools` must be "auto" or "required", found {})",
                    found == nullptr ? "none" : Describe(*found)),
        "tool_choice.mode");
  }
  const json::Value* list = allowed.Find("tools");
  if (list == nullptr || !list->is_array() || list->as_array().empty()) {
    return BadParameter("`tools` of `allowed_tools` must be a list of at least one tool",
                        "tool_choice.tools");
  }
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    if (Describes(tools, AllowedName(list->as_array()[i]))) continue;
    return BadParameter(
        "A tool specified in `allowed_tools` does not match any of the specified `tools`",
        fmt::format("tool_choice.tools.{}", i));
  }
  return {};
}

void KeepAllowedTools(const json::Value* choice, json::Value& tools) {
  const json::Value* allowed = AllowedTools(choice);
  if (allowed == nullptr || !tools.is_array()) return;
  std::set<std::string> names;
  for (const json::Value& entry : allowed->Find("tools")->as_array())
    names.insert(AllowedName(entry).as_string());
  std::erase_if(tools.as_array(), [&](const json::Value& tool) {
    return !names.contains(FunctionName(tool)->as_string());
  });
}

ToolFields ReadToolFields(FieldReader& reader, bool has_tools,
                          std::string (*name_of)(const json::Value& choice)) {
  ToolFields fields;
  reader.Read("parallel_tool_calls", fields.parallel, {.nullable = true});
  if (!has_tools) return fields;
  const json::Value* choice = reader.Raw("tool_choice");
  if (choice == nullptr) {
    // As in vLLM, null means no tools rather than the default.
    const bool absent = reader.object().Find("tool_choice") == nullptr;
    fields.choice = absent ? ToolChoice::kAuto : ToolChoice::kNone;
  } else if (*choice == json::Value("auto")) {
    fields.choice = ToolChoice::kAuto;
  } else if (IsRequired(*choice)) {
    fields.choice = ToolChoice::kRequired;
  } else if (const json::Value* allowed = AllowedTools(choice)) {
    fields.choice =
        TextAt(*allowed, "mode") == "required" ? ToolChoice::kRequired : ToolChoice::kAuto;
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
