#include "server/api/responses/response_items.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/api/common/model_context.h"
#include "server/api/request/conversation.h"
#include "server/api/request/prompt_images.h"
#include "server/api/request/response_tools.h"

namespace sluice {
namespace {

constexpr std::string_view kCustomToolInput = "input";  // name of the argument of a custom tool's
                                                        // call

enum class FieldKind { kText, kTextOrParts, kList, kObject, kArguments };

struct ItemField {
  std::string_view name;
  FieldKind kind;
  bool required = true;
};

struct ItemType {
  std::string_view name;
  std::string_view prefix;  // prefix of the item's id
  std::vector<ItemField> fields = {};
  // Whether the item reports an action of a tool that OpenAI's servers run. It is not shown to the
  // model, because a later message states the result.
  bool is_of_server = false;
};

const std::vector<ItemType>& ItemTypes() {
  static const std::vector<ItemType> types = {
      {"message", "msg_", {{"role", FieldKind::kText}, {"content", FieldKind::kTextOrParts}}},
      {"function_call",
       "fc_",
       {{"call_id", FieldKind::kText},
        {"name", FieldKind::kText},
        {"arguments", FieldKind::kArguments, false}}},
      {"function_call_output",
       "fco_",
       {{"call_id", FieldKind::kText}, {"output", FieldKind::kTextOrParts}}},
      {"reasoning",
       "rs_",
       {{"summary", FieldKind::kList, false},
        {"content", FieldKind::kList, false},
        {"encrypted_content", FieldKind::kText, false}}},
      {"item_reference", "", {{"id", FieldKind::kText}}},
      {"custom_tool_call",
       "ctc_",
       {{"call_id", FieldKind::kText}, {"name", FieldKind::kText}, {"input", FieldKind::kText}}},
      {"custom_tool_call_output",
       "ctco_",
       {{"call_id", FieldKind::kText}, {"output", FieldKind::kTextOrParts}}},
      {"local_shell_call", "lsh_", {{"call_id", FieldKind::kText}, {"action", FieldKind::kObject}}},
      {"local_shell_call_output", "lsho_", {{"output", FieldKind::kText}}},
      {"shell_call", "sh_", {{"call_id", FieldKind::kText}, {"action", FieldKind::kObject}}},
      {"shell_call_output", "sho_", {{"call_id", FieldKind::kText}, {"output", FieldKind::kList}}},
      {"apply_patch_call",
       "apc_",
       {{"call_id", FieldKind::kText}, {"operation", FieldKind::kObject}}},
      {"apply_patch_call_output",
       "apco_",
       {{"call_id", FieldKind::kText}, {"output", FieldKind::kText, false}}},
      {"mcp_call",
       "mcp_",
       {{"id", FieldKind::kText},
        {"name", FieldKind::kText},
        {"arguments", FieldKind::kArguments, false},
        {"output", FieldKind::kText, false}}},
      {.name = "web_search_call", .prefix = "ws_", .is_of_server = true},
      {.name = "file_search_call", .prefix = "fs_", .is_of_server = true},
      {.name = "code_interpreter_call", .prefix = "ci_", .is_of_server = true},
      {.name = "image_generation_call", .prefix = "ig_", .is_of_server = true},
      {.name = "tool_search_call", .prefix = "tsc_", .is_of_server = true},
      {.name = "tool_search_output", .prefix = "tso_", .is_of_server = true},
      {.name = "mcp_list_tools", .prefix = "mcpl_", .is_of_server = true},
      {.name = "mcp_approval_request", .prefix = "mcpr_", .is_of_server = true},
      {.name = "mcp_approval_response", .prefix = "mcpa_", .is_of_server = true},
  };
  return types;
}

std::string TypeOf(const json::Value& item) {
  const json::Value* type = item.Find("type");
  if (type == nullptr || type->is_null())
    return item.Find("role") != nullptr || item.Find("content") != nullptr ? "message"
                                                                           : "item_reference";
  return type->is_string() ? type->as_string() : "";
}

const ItemType* FindType(std::string_view name) {
  const auto found = std::ranges::find(ItemTypes(), name, &ItemType::name);
  return found == ItemTypes().end() ? nullptr : &*found;
}

bool IsPart(const json::Value& part) {
  return part.is_object() && !TextAt(part, "type").empty();
}

bool IsOfKind(const json::Value& value, FieldKind kind) {
  switch (kind) {
    case FieldKind::kText: return value.is_string();
    case FieldKind::kTextOrParts:
      return value.is_string() ||
             (value.is_array() && std::ranges::all_of(value.as_array(), IsPart));
    case FieldKind::kList: return value.is_array();
    case FieldKind::kObject: return value.is_object();
    case FieldKind::kArguments: return ReplayedArguments(&value).has_value();
  }
  return false;
}

std::string_view NameOf(FieldKind kind) {
  switch (kind) {
    case FieldKind::kText: return "a string";
    case FieldKind::kTextOrParts: return "a string or a list of parts, each with a type";
    case FieldKind::kList: return "a list";
    case FieldKind::kObject: return "an object";
    case FieldKind::kArguments: return "a string";
  }
  return "";
}

void CheckItem(FieldReader& reader, const json::Value& item, const std::string& place) {
  if (!item.is_object()) return reader.Add(place, "an object", item);
  const ItemType* type = FindType(TypeOf(item));
  if (type == nullptr) {
    std::string names;
    for (const ItemType& known : ItemTypes())
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known.name);
    return reader.Add(place + ".type", "one of " + names, *item.Find("type"));
  }
  for (const ItemField& field : type->fields) {
    const json::Value* value = item.Find(field.name);
    if (value == nullptr || (value->is_null() && !field.required)) {
      if (field.required) reader.AddMissing(fmt::format("{}.{}", place, field.name));
    } else if (!IsOfKind(*value, field.kind)) {
      reader.Add(fmt::format("{}.{}", place, field.name), NameOf(field.kind), *value);
    }
  }
  static constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  const json::Value* role = type->name == "message" ? item.Find("role") : nullptr;
  if (role != nullptr && role->is_string() &&
      std::ranges::find(kRoles, role->as_string()) == std::end(kRoles)) {
    reader.Add(place + ".role", R"("user", "assistant", "system" or "developer")", *role);
  }
}

// Converts parts to parts of a chat message. Adds to each image its location in the request, for
// error messages. Gives files the name of a type that is refused later.
json::Value ChatContent(const json::Value& content, const std::string& place) {
  if (!content.is_array()) return content;
  json::Value::Array parts;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const json::Value& part = content.as_array()[i];
    const std::string type = TextAt(part, "type");
    json::Value chat = part;
    if (type == "input_image" || IsImagePart(type)) {
      const json::Value* url = part.Find("image_url");
      chat = json::Value::Object{
          {"type", "image_url"},
          {"image_url", url == nullptr ? json::Value() : *url},
          {std::string(kPlaceOfPart), fmt::format("{}[{}].image_url", place, i)}};
    }
    if (type == "input_file") chat.Set("type", "file");
    parts.push_back(std::move(chat));
  }
  return json::Value(std::move(parts));
}

// Returns all text in the parts of a message or a thought that a model wrote.
std::string JoinedText(const json::Value* parts) {
  if (parts == nullptr) return "";
  if (parts->is_string()) return parts->as_string();
  std::string text;
  if (!parts->is_array()) return text;
  for (const json::Value& part : parts->as_array()) {
    const bool refuses = TextAt(part, "type") == "refusal";
    text += part.is_string() ? part.as_string() : TextAt(part, refuses ? "refusal" : "text");
  }
  return text;
}

// Returns the last message if it is the assistant's and lacks `member`, else a new one.
json::Value& AssistantWithout(std::string_view member, json::Value::Array& messages) {
  if (messages.empty() || TextAt(messages.back(), "role") != "assistant" ||
      messages.back().Find(member) != nullptr)
    messages.emplace_back(json::Value::Object{{"role", "assistant"}});
  return messages.back();
}

void AppendCall(std::string id, std::string name, std::string arguments,
                json::Value::Array& messages) {
  json::Value call(json::Value::Object{
      {"id", std::move(id)},
      {"type", "function"},
      {"function",
       json::Value::Object{{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
  if (!messages.empty() && TextAt(messages.back(), "role") == "assistant") {
    for (auto& [key, value] : messages.back().as_object()) {
      if (key == "tool_calls") return value.as_array().push_back(std::move(call));
    }
  }
  json::Value::Array calls;
  calls.push_back(std::move(call));
  AssistantWithout("tool_calls", messages).Set("tool_calls", std::move(calls));
}

ApiStatus AppendReasoning(const json::Value& item, json::Value::Array& messages) {
  std::string text = JoinedText(item.Find("content"));
  if (text.empty()) text = JoinedText(item.Find("summary"));
  if (text.empty() && !TextAt(item, "encrypted_content").empty()) {
    return BadParameter(
        "reasoning with encrypted_content only is not supported: this server cannot decrypt "
        "content of another server",
        "input");
  }
  if (!text.empty()) AssistantWithout("reasoning", messages).Set("reasoning", std::move(text));
  return {};
}

void AppendOutput(const std::string& call_id, json::Value content, json::Value::Array& messages) {
  messages.emplace_back(json::Value::Object{
      {"role", "tool"}, {"tool_call_id", call_id}, {"content", std::move(content)}});
}

// Returns the output of a call of a tool that the client runs.
json::Value OutputContent(const json::Value& item, const std::string& place) {
  const json::Value* output = item.Find("output");
  const std::string type = TypeOf(item);
  if (type == "shell_call_output") return json::Write(*output);
  if (type == "apply_patch_call_output" && (output == nullptr || output->is_null()))
    return TextAt(item, "status");
  return ChatContent(*output, place + ".output");
}

// `place`: the item's location, "input[0]".
ApiStatus AppendItem(const json::Value& item, const std::string& place,
                     json::Value::Array& messages) {
  const std::string type = TypeOf(item);
  const std::string name = TextAt(item, "name");
  const std::string call_id = TextAt(item, "call_id");
  if (FindType(type)->is_of_server) return {};
  if (type == "reasoning") return AppendReasoning(item, messages);
  if (type == "function_call") {
    AppendCall(call_id, FlatName(TextAt(item, "namespace"), name), TextAt(item, "arguments"),
               messages);
  } else if (type == "custom_tool_call") {
    json::Value arguments{json::Value::Object{}};
    arguments.Set(kCustomToolInput, TextAt(item, "input"));
    AppendCall(call_id, FlatName(TextAt(item, "namespace"), name), json::Write(arguments),
               messages);
  } else if (type == "local_shell_call") {
    AppendCall(call_id, "local_shell", json::Write(*item.Find("action")), messages);
  } else if (type == "shell_call") {
    AppendCall(call_id, "shell", json::Write(*item.Find("action")), messages);
  } else if (type == "apply_patch_call") {
    AppendCall(call_id, "apply_patch", json::Write(*item.Find("operation")), messages);
  } else if (type == "mcp_call") {
    const std::string id = TextAt(item, "id");
    AppendCall(id, name, TextAt(item, "arguments"), messages);
    AppendOutput(id, TextAt(item, "output"), messages);
  } else if (type != "message") {
    AppendOutput(call_id, OutputContent(item, place), messages);
  } else if (TextAt(item, "role") == "assistant") {
    AssistantWithout("content", messages).Set("content", JoinedText(item.Find("content")));
  } else {
    // Templates have no developer role. As in vLLM, it becomes the system role.
    const std::string role = TextAt(item, "role");
    messages.emplace_back(
        json::Value::Object{{"role", role == "developer" ? "system" : role},
                            {"content", ChatContent(*item.Find("content"), place + ".content")}});
  }
  return {};
}

}  // namespace

std::string NewResponseId(std::string_view prefix) {
  constexpr int kDigits = 16;
  return std::string(prefix) + RandomHex(kDigits);
}

void CheckInput(FieldReader& reader, const json::Value& input) {
  if (input.is_string()) return;
  std::vector<FieldError> errors;
  FieldReader places(reader.object(), "body", &errors);
  if (input.is_array()) {
    for (size_t i = 0; i < input.as_array().size(); ++i)
      CheckItem(places, input.as_array()[i], fmt::format("input.{}", i));
    if (errors.empty()) return;
  }
  // As in vLLM, `param` names the whole field; the errors at inner locations are listed after it.
  reader.Add("input", "a string or a list of items", input);
  reader.errors()->insert(reader.errors()->end(), errors.begin(), errors.end());
}

json::Value::Array InputItems(const json::Value& input) {
  json::Value::Array items;
  if (input.is_string()) {
    json::Value::Array parts;
    parts.emplace_back(json::Value::Object{{"type", "input_text"}, {"text", input.as_string()}});
    items.emplace_back(json::Value::Object{{"id", NewResponseId("msg_")},
                                           {"type", "message"},
                                           {"role", "user"},
                                           {"content", std::move(parts)}});
    return items;
  }
  for (const json::Value& given : input.as_array()) {
    const ItemType& type = *FindType(TypeOf(given));
    json::Value item = given;
    item.Set("type", type.name);
    if (TextAt(item, "id").empty()) item.Set("id", NewResponseId(type.prefix));
    items.push_back(std::move(item));
  }
  return items;
}

ApiStatus AppendMessages(const json::Value::Array& items, const FindItem& find_item,
                         json::Value::Array& messages) {
  for (size_t i = 0; i < items.size(); ++i) {
    const json::Value& item = items[i];
    const std::string place = fmt::format("input[{}]", i);
    if (TypeOf(item) != "item_reference") {
      API_RETURN_IF_ERROR(AppendItem(item, place, messages));
      continue;
    }
    const std::string id = TextAt(item, "id");
    const std::optional<json::Value> found = find_item(id);
    if (!found) {
      return InvalidRequest(404, fmt::format("Item with id '{}' not found.", id.substr(0, 100)),
                            "input");
    }
    API_RETURN_IF_ERROR(AppendItem(*found, place, messages));
  }
  return {};
}

bool EndsUnfinished(const json::Value::Array& items) {
  if (items.empty() || TypeOf(items.back()) != "message" ||
      TextAt(items.back(), "role") != "assistant")
    return false;
  const std::string status = TextAt(items.back(), "status");
  return status == "in_progress" || status == "incomplete";
}

}  // namespace sluice
