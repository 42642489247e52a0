#include "server/api/anthropic/messages_request.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/api/common/field_reader.h"
#include "server/api/request/constraint_fields.h"
#include "server/api/request/conversation.h"
#include "server/api/request/prompt_images.h"

namespace sluice {
namespace {

using JsonObject = json::Value::Object;
using JsonArray = json::Value::Array;

constexpr FieldRule kNeeded{.required = true};
constexpr FieldRule kMayBeNull{.nullable = true};

// Claude Code's first block of `system` contains a value that changes with every request. If the
// block were in the prompt, no cached prefix would ever match.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

json::Value TextPart(std::string text) {
  return JsonObject{{"type", "text"}, {"text", std::move(text)}};
}

// Appends a paragraph to a message's text.
void AppendParagraph(json::Value& message, const std::string& text) {
  const json::Value content = *message.Find("content");
  if (content.is_array()) {
    JsonArray parts = content.as_array();
    parts.push_back(TextPart(text));
    return message.Set("content", std::move(parts));
  }
  const std::string& before = content.as_string();
  message.Set("content", before.empty() ? text : before + "\n\n" + text);
}

// Converts the messages of a request to chat messages.
class ConversationBuilder {
 public:
  explicit ConversationBuilder(FieldReader& reader) : reader_(reader) {}

  void AddSystem(const json::Value& system) { system_ += SystemText(system, "system"); }

  void AddMessage(const json::Value& message, size_t index) {
    const std::string place = fmt::format("messages.{}", index);
    if (!message.is_object()) return reader_.Add(place, "an object", message);
    const json::Value* content = message.Find("content");
    if (content == nullptr) return reader_.AddMissing(place + ".content");
    const json::Value* role = message.Find("role");
    if (role == nullptr) return reader_.AddMissing(place + ".role");
    const std::string name = role->is_string() ? role->as_string() : "";
    // Some releases of Claude Code use "ctx" and "msg" for the user's role.
    const bool of_user = name == "user" || name == "ctx" || name == "msg";
    if (!of_user && name != "assistant" && name != "system")
      return reader_.Add(place + ".role", R"("user", "assistant" or "system")", *role);
    if (!content->is_string() && !content->is_array())
      return reader_.Add(place + ".content", "a string or a list of blocks", *content);
    if (name == "system") return AddInnerSystem(SystemText(*content, place + ".content"));
    if (of_user) {
      AddUser(*content, place + ".content");
    } else {
      AddAssistant(*content, place + ".content");
    }
  }

  json::Value Take() {
    MakePendingATurn();
    JsonArray all;
    all.reserve(messages_.size() + 1);
    if (!system_.empty())
      all.push_back(JsonObject{{"role", "system"}, {"content", std::move(system_)}});
    for (json::Value& message : messages_) all.push_back(std::move(message));
    return json::Value(std::move(all));
  }

 private:
  void RefuseBlock(const json::Value& block, const std::string& content, size_t index,
                   std::string_view known) {
    // As in vLLM, the first error states that the content is not a string.
    reader_.Add(content, fmt::format("a string or a list of blocks of type {}", known), block);
    const json::Value* type = block.Find("type");
    reader_.Add(fmt::format("{}.{}.type", content, index), known, type == nullptr ? block : *type);
  }

  // Returns the text of a system prompt, whose blocks are joined without a separator.
  std::string SystemText(const json::Value& system, const std::string& place) {
    if (system.is_string()) return system.as_string();
    std::string text;
    if (!system.is_array()) {
      reader_.Add(place, "a string or a list of blocks", system);
      return text;
    }
    for (size_t i = 0; i < system.as_array().size(); ++i) {
      const json::Value& block = system.as_array()[i];
      if (TextAt(block, "type") != "text") {
        RefuseBlock(block, place, i, R"("text")");
        continue;
      }
      const std::string piece = TextOf(block, "text", fmt::format("{}.{}", place, i));
      if (!piece.starts_with(kBillingHeader)) text += piece;
    }
    return text;
  }

  // Adds later system text to the adjacent user turn: the previous one or, after an answer, the
  // next one. Most templates accept a system message only at the beginning. If the text were moved
  // to the beginning, no cached prefix of the conversation would match.
  void AddInnerSystem(const std::string& text) {
    if (messages_.empty()) {
      system_ += text;
    } else if (!text.empty()) {
      pending_ += pending_.empty() ? text : "\n\n" + text;
    }
  }
  void GivePendingToLastTurn() {
    if (pending_.empty() || messages_.empty() ||
        messages_.back().Find("role")->as_string() == "assistant")
      return;
    AppendParagraph(messages_.back(), std::exchange(pending_, ""));
  }
  // Makes the pending system text a separate user turn if none is adjacent.
  void MakePendingATurn() {
    GivePendingToLastTurn();
    if (!pending_.empty())
      messages_.push_back(JsonObject{{"role", "user"}, {"content", std::exchange(pending_, "")}});
  }

  void AddUser(const json::Value& content, const std::string& place) {
    JsonArray turn;
    json::Value said;
    if (content.is_string()) {
      said = content;
    } else {
      JsonArray parts;
      for (size_t i = 0; i < content.as_array().size(); ++i) {
        const json::Value& block = content.as_array()[i];
        const std::string type = TextAt(block, "type");
        const std::string at = fmt::format("{}.{}", place, i);
        if (type == "tool_result") {
          turn.push_back(ToolResult(block, at));
        } else if (!AddPart(block, type, at, parts)) {
          RefuseBlock(block, place, i, R"("text", "image" or "tool_result")");
        }
      }
      said = ContentOf(std::move(parts));
    }
    if (!said.is_null()) turn.push_back(JsonObject{{"role", "user"}, {"content", std::move(said)}});
    // A message without content is not a turn.
    if (turn.empty()) return;
    GivePendingToLastTurn();
    for (json::Value& message : turn) messages_.push_back(std::move(message));
    GivePendingToLastTurn();
  }

  void AddAssistant(const json::Value& content, const std::string& place) {
    MakePendingATurn();
    if (content.is_string()) {
      messages_.push_back(JsonObject{{"role", "assistant"}, {"content", content}});
      return;
    }
    JsonArray parts, calls;
    std::string reasoning;
    for (size_t i = 0; i < content.as_array().size(); ++i) {
      const json::Value& block = content.as_array()[i];
      const std::string type = TextAt(block, "type");
      const std::string at = fmt::format("{}.{}", place, i);
      if (type == "tool_use") {
        AddToolUse(block, at, calls);
      } else if (type == "thinking") {
        reasoning += TextOf(block, "thinking", at);
      } else if (type != "redacted_thinking" && !AddPart(block, type, at, parts)) {
        RefuseBlock(block, place, i,
                    R"("text", "image", "tool_use", "thinking" or "redacted_thinking")");
      }
    }
    json::Value message =
        JsonObject{{"role", "assistant"}, {"content", ContentOf(std::move(parts))}};
    if (!reasoning.empty()) message.Set("reasoning", std::move(reasoning));
    if (!calls.empty()) message.Set("tool_calls", std::move(calls));
    messages_.push_back(std::move(message));
  }

  // Reads a required string of a block.
  std::string TextOf(const json::Value& block, std::string_view name, const std::string& place) {
    std::string text;
    FieldReader(block, "body." + place, reader_.errors()).Read(name, text, kNeeded);
    return text;
  }

  // Adds a text or image part. Returns false for other types.
  bool AddPart(const json::Value& block, std::string_view type, const std::string& place,
               JsonArray& parts) {
    if (type == "image") {
      parts.push_back(ImagePart(block, place + ".source"));
      return true;
    }
    if (type != "text") return false;
    std::string text = TextOf(block, "text", place);
    if (!text.empty()) parts.push_back(TextPart(std::move(text)));
    return true;
  }

  // Converts {"type": "base64", "media_type": ..., "data": ...} or {"type": "url", "url": ...} to
  // the image part of a chat.
  json::Value ImagePart(const json::Value& block, const std::string& place) {
    const json::Value* source = block.Find("source");
    std::string url;
    if (source == nullptr || !source->is_object()) {
      reader_.Add(place, "an object with a type", source == nullptr ? json::Value() : *source);
    } else if (TextAt(*source, "type") == "base64") {
      url = fmt::format("data:{};base64,{}", TextAt(*source, "media_type"),
                        TextOf(*source, "data", place));
    } else if (TextAt(*source, "type") == "url") {
      url = TextOf(*source, "url", place);
    } else {
      const json::Value* type = source->Find("type");
      reader_.Add(place + ".type", R"("base64" or "url")", type == nullptr ? json::Value() : *type);
    }
    return JsonObject{{"type", "image_url"},
                      {"image_url", JsonObject{{"url", std::move(url)}}},
                      {std::string(kPlaceOfPart), place}};
  }

  // Returns null if there are no parts.
  static json::Value ContentOf(JsonArray parts) {
    if (parts.empty()) return {};
    if (parts.size() == 1 && parts[0].Find("text") != nullptr) return *parts[0].Find("text");
    return json::Value(std::move(parts));
  }

  void AddToolUse(const json::Value& block, const std::string& place, JsonArray& calls) {
    FieldReader fields(block, "body." + place, reader_.errors());
    std::string id, name;
    fields.Read("id", id, kNeeded);
    fields.Read("name", name, kNeeded);
    const json::Value* input = block.Find("input");
    const bool is_object = input != nullptr && input->is_object();
    std::optional<std::string> arguments =
        is_object ? json::Write(*input) : ReplayedArguments(input);
    if (!arguments) fields.Add("input", "an object", *input);
    calls.push_back(JsonObject{
        {"id", std::move(id)},
        {"type", "function"},
        {"function",
         JsonObject{{"name", std::move(name)}, {"arguments", std::move(arguments).value_or("")}}}});
  }

  json::Value ToolResult(const json::Value& block, const std::string& place) {
    std::string id;
    FieldReader(block, "body." + place, reader_.errors()).Read("tool_use_id", id, kNeeded);
    json::Value content = "";
    const json::Value* given = block.Find("content");
    if (given != nullptr && given->is_string()) {
      content = *given;
    } else if (given != nullptr && given->is_array()) {
      JsonArray parts;
      for (size_t i = 0; i < given->as_array().size(); ++i) {
        const json::Value& part = given->as_array()[i];
        if (!AddPart(part, TextAt(part, "type"), fmt::format("{}.content.{}", place, i), parts))
          RefuseBlock(part, place + ".content", i, R"("text" or "image")");
      }
      if (!parts.empty()) content = ContentOf(std::move(parts));
    } else if (given != nullptr && !given->is_null()) {
      reader_.Add(place + ".content", "a string or a list of blocks", *given);
    }
    return JsonObject{
        {"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(content)}};
  }

  FieldReader& reader_;
  std::string system_;   // text of the first message
  std::string pending_;  // text of later system messages, for the next user turn
  JsonArray messages_;
};

// Returns null without `tools` or for an empty list.
json::Value ReadMessagesTools(FieldReader& reader) {
  const JsonArray* list = nullptr;
  if (!reader.Read("tools", list, kMayBeNull) || list->empty()) return {};
  JsonArray tools;
  tools.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const json::Value& given = (*list)[i];
    const std::string place = fmt::format("tools.{}", i);
    if (!given.is_object()) {
      reader.Add(place, "an object", given);
      continue;
    }
    if (const json::Value* type = given.Find("type");
        type != nullptr && !type->is_null() && *type != json::Value("custom")) {
      reader.Add(place + ".type", R"("custom": this server runs no tools of its own)", *type);
      continue;
    }
    FieldReader fields(given, "body." + place, reader.errors());
    std::string name;
    std::optional<std::string> description;
    std::optional<bool> strict;
    const JsonObject* schema = nullptr;
    fields.Read("name", name, kNeeded);
    fields.Read("description", description);
    fields.Read("strict", strict);
    fields.Read("input_schema", schema, kNeeded);
    json::Value parameters =
        schema == nullptr ? json::Value(JsonObject{}) : *given.Find("input_schema");
    if (parameters.Find("type") == nullptr) parameters.Set("type", "object");
    json::Value function = JsonObject{
        {"name", std::move(name)},
        {"description", description ? json::Value(*std::move(description)) : json::Value()},
        {"parameters", std::move(parameters)}};
    if (strict) function.Set("strict", *strict);
    tools.push_back(JsonObject{{"type", "function"}, {"function", std::move(function)}});
  }
  return json::Value(std::move(tools));
}

// Sets tool_choice and parallel_tool_calls of `chat`, which already has its tools.
ApiStatus ReadMessagesToolChoice(FieldReader& reader, json::Value& chat) {
  static constexpr std::string_view kTypes[] = {"auto", "any", "tool", "none"};
  const JsonObject* given = nullptr;
  if (!reader.Read("tool_choice", given, kMayBeNull)) return {};
  FieldReader fields(*reader.Raw("tool_choice"), "body.tool_choice", reader.errors());
  std::string type, name;
  bool one_call = false;
  fields.Read("type", type, {.required = true, .one_of = kTypes});
  fields.Read("name", name, kMayBeNull);
  fields.Read("disable_parallel_tool_use", one_call, kMayBeNull);
  if (type == "tool" && name.empty())
    reader.Add("tool_choice", R"(an object with a "name", as its type is "tool")",
               *reader.Raw("tool_choice"));
  if (!reader.errors()->empty()) return {};
  if (chat.Find("tools") == nullptr) {
    if (type == "auto" || type == "none") return {};
    return BadParameter(
        fmt::format("tool_choice of type \"{}\" requires a call, but there are no tools", type),
        "tool_choice");
  }
  if (one_call) chat.Set("parallel_tool_calls", false);
  if (type == "tool") {
    chat.Set("tool_choice",
             JsonObject{{"type", "function"}, {"function", JsonObject{{"name", name}}}});
  } else {
    chat.Set("tool_choice", type == "any" ? "required" : type);
  }
  return {};
}

// Sets the template's thinking argument, unless the client has set it.
ApiStatus ReadMessagesThinking(FieldReader& reader, const ServerConfig& config,
                               MessagesEndpoint endpoint, json::Value& chat) {
  static constexpr std::string_view kTypes[] = {"enabled", "disabled", "adaptive"};
  const JsonObject* given = nullptr;
  if (!reader.Read("thinking", given, kMayBeNull)) return {};
  FieldReader fields(*reader.Raw("thinking"), "body.thinking", reader.errors());
  std::string type;
  std::optional<int64_t> budget;
  fields.Read("type", type, {.required = true, .one_of = kTypes});
  fields.Read("budget_tokens", budget, {.min = 1});
  if (!reader.errors()->empty() || type == "adaptive") return {};
  if (type == "enabled" && endpoint == MessagesEndpoint::kMessages) {
    const json::Value* most = chat.Find("max_tokens");
    if (budget && most != nullptr && *budget >= most->as_integer())
      return ValidationFailed({{"body", "thinking.budget_tokens below max_tokens",
                                fmt::format("{} of {}", *budget, most->as_integer())}});
    if (config.reasoning_parser.empty()) {
      return BadParameter(
          "thinking is enabled, but this server has no reasoning parser; start it with "
          "--reasoning-parser, or omit `thinking`",
          "thinking");
    }
  }
  json::Value kwargs{JsonObject{}};
  if (const json::Value* own = chat.Find("chat_template_kwargs");
      own != nullptr && own->is_object())
    kwargs = *own;
  if (kwargs.Find("enable_thinking") == nullptr) kwargs.Set("enable_thinking", type == "enabled");
  chat.Set("chat_template_kwargs", std::move(kwargs));
  return {};
}

// Reads the member `name` of `config`. `place`: its location in the body.
void ReadOutputFormat(FieldReader& config, std::string_view name, const char* place,
                      json::Value& chat) {
  static constexpr std::string_view kTypes[] = {"json_schema"};
  const JsonObject* given = nullptr;
  if (!config.Read(name, given, kMayBeNull)) return;
  FieldReader fields(*config.Raw(name), place, config.errors());
  std::string type;
  const JsonObject* schema = nullptr;
  fields.Read("type", type, {.required = true, .one_of = kTypes});
  if (!fields.Read("schema", schema, kNeeded)) return;
  chat.Set("response_format",
           JsonObject{{"type", "json_schema"},
                      {"json_schema",
                       JsonObject{{"name", "json_schema"}, {"schema", *fields.Raw("schema")}}}});
}

// Reads `output_config`, and `output_format` of the beta API.
void ReadOutputConfig(FieldReader& reader, json::Value& chat) {
  static constexpr std::string_view kEfforts[] = {"low", "medium", "high", "xhigh", "max"};
  ReadOutputFormat(reader, "output_format", "body.output_format", chat);
  const JsonObject* given = nullptr;
  if (!reader.Read("output_config", given, kMayBeNull)) return;
  FieldReader config(*reader.Raw("output_config"), "body.output_config", reader.errors());
  ReadOutputFormat(config, "format", "body.output_config.format", chat);
  std::string effort;
  if (config.Read("effort", effort, {.nullable = true, .one_of = kEfforts}))
    chat.Set("reasoning_effort", std::move(effort));
}

void ReadMessagesStopSequences(FieldReader& reader, const ServerConfig& config, json::Value& chat) {
  const JsonArray* list = nullptr;
  if (!reader.Read("stop_sequences", list, kMayBeNull)) return;
  if (list->size() > static_cast<size_t>(config.max_stop_strings)) {
    return reader.Add("stop_sequences",
                      fmt::format("a list of at most {} strings", config.max_stop_strings),
                      *reader.Raw("stop_sequences"));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const json::Value& text = (*list)[i];
    if (!text.is_string() || text.as_string().empty())
      reader.Add(fmt::format("stop_sequences.{}", i), "a string that is not empty", text);
  }
  chat.Set("stop", *reader.Raw("stop_sequences"));
}

// Reads fields that affect only the answer, not the prompt.
void ReadMessagesSampling(FieldReader& reader, const ServerConfig& config, json::Value& chat) {
  int64_t max_tokens = 0;
  if (reader.Read("max_tokens", max_tokens, {.required = true, .min = 1}))
    chat.Set("max_tokens", max_tokens);
  ReadMessagesStopSequences(reader, config, chat);
  for (const char* name : {"temperature", "top_p", "top_k", "stream"}) {
    if (const json::Value* value = reader.Raw(name); value != nullptr) chat.Set(name, *value);
  }
}

}  // namespace

ApiResult<json::Value> ChatBodyOf(const json::Value& body, const ServerConfig& config,
                                  MessagesEndpoint endpoint) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  json::Value chat{JsonObject{}};
  std::string model;
  if (reader.Read("model", model, kNeeded)) chat.Set("model", std::move(model));
  reader.Check<JsonObject const*>("metadata", kMayBeNull);
  if (endpoint == MessagesEndpoint::kMessages) ReadMessagesSampling(reader, config, chat);
  for (const char* name : {"chat_template_kwargs", "cache_salt", "kv_transfer_params",
                           "mm_processor_kwargs", "media_io_kwargs"}) {
    if (const json::Value* value = reader.Raw(name); value != nullptr) chat.Set(name, *value);
  }
  if (IsTruthy(body.Find("mcp_servers")))
    return Unsupported("calling the tools of other servers", "mcp_servers");

  ConversationBuilder conversation(reader);
  if (const json::Value* system = reader.Raw("system"); system != nullptr)
    conversation.AddSystem(*system);
  const JsonArray* messages = nullptr;
  if (reader.Read("messages", messages, kNeeded)) {
    for (size_t i = 0; i < messages->size(); ++i) conversation.AddMessage((*messages)[i], i);
    chat.Set("messages", conversation.Take());
  }
  if (json::Value tools = ReadMessagesTools(reader); !tools.is_null())
    chat.Set("tools", std::move(tools));
  API_RETURN_IF_ERROR(ReadMessagesToolChoice(reader, chat));
  API_RETURN_IF_ERROR(ReadMessagesThinking(reader, config, endpoint, chat));
  if (endpoint == MessagesEndpoint::kMessages) {
    ReadOutputConfig(reader, chat);
    // Constraint fields of other APIs are also accepted.
    for (const auto& [name, value] : body.as_object()) {
      if (value.is_null() || !IsConstraintField(name)) continue;
      if (chat.Find(name) != nullptr) reader.Add(name, "nothing beside output_config", value);
      chat.Set(name, value);
    }
  }
  if (!errors.empty()) return ValidationFailed(errors);
  return chat;
}

}  // namespace sluice
