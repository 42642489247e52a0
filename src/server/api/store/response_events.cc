#include "server/api/store/response_events.h"

#include <fmt/format.h>

#include "server/api/common/answer_json.h"
#include "server/api/common/field_reader.h"

namespace sluice {
namespace {

using Kind = OutputItem::Kind;

void AppendMember(std::string& out, std::string_view name, std::string_view text) {
  out += fmt::format(R"("{}":)", name);
  json::AppendString(out, text);
}

void AppendLogprobs(std::string& out, const OutputItem& item) {
  if (item.shows_logprobs) {
    out += fmt::format("[{}]", item.logprobs);
  } else {
    out += "null";
  }
}

// Appends the only part of a message or of reasoning, with all its text.
void AppendPart(std::string& out, const OutputItem& item) {
  if (item.kind == Kind::kReasoning) {
    out.push_back('{');
    AppendMember(out, "text", item.text);
    out += R"(,"type":"reasoning_text"})";
    return;
  }
  out += R"({"annotations":[],)";
  AppendMember(out, "text", item.text);
  out += R"(,"type":"output_text","logprobs":)";
  AppendLogprobs(out, item);
  out.push_back('}');
}

std::string_view Part(const OutputItem& item) {
  return item.kind == Kind::kReasoning
             ? R"({"text":"","type":"reasoning_text"})"
             : R"({"annotations":[],"text":"","type":"output_text","logprobs":[]})";
}

// Formats an event. `members`: the JSON before the sequence number.
std::string EventText(int64_t number, std::string_view type, std::string_view members) {
  return fmt::format("event: {}\ndata: {{{},\"sequence_number\":{},\"type\":\"{}\"}}\n\n", type,
                     members, number, type);
}

// Parses an item written by AppendOutputItem().
OutputItem ReadItem(const json::Value& written) {
  OutputItem item;
  item.id = TextAt(written, "id");
  item.status = TextAt(written, "status");
  const std::string type = TextAt(written, "type");
  if (type == "function_call") {
    item.kind = Kind::kCall;
    item.call_id = TextAt(written, "call_id");
    item.name = TextAt(written, "name");
    item.space = TextAt(written, "namespace");
    item.text = TextAt(written, "arguments");
    return item;
  }
  if (type == "reasoning") item.kind = Kind::kReasoning;
  const json::Value* content = written.Find("content");
  if (content == nullptr || !content->is_array() || content->as_array().empty()) return item;
  const json::Value& part = content->as_array().front();
  item.text = TextAt(part, "text");
  const json::Value* logprobs = part.Find("logprobs");
  if (logprobs == nullptr || !logprobs->is_array()) return item;
  item.shows_logprobs = true;
  const std::string list = json::Write(*logprobs);
  item.logprobs = list.substr(1, list.size() - 2);
  return item;
}

}  // namespace

std::string LastEventType(std::string_view status) {
  return fmt::format("response.{}", status);
}

std::string ResponseEvent(int64_t number, std::string_view type, std::string_view response) {
  return EventText(number, type, fmt::format(R"("response":{})", response));
}

void AppendOutputItem(std::string& out, const OutputItem& item) {
  const bool begins = item.status == "in_progress";
  out.push_back('{');
  if (item.kind == Kind::kCall) {
    AppendMember(out, "arguments", item.text);
    out.push_back(',');
    AppendMember(out, "call_id", item.call_id);
    out.push_back(',');
    AppendMember(out, "name", item.name);
    out += R"(,"type":"function_call",)";
    AppendMember(out, "id", item.id);
    out += R"(,"async":null,"caller":null,"namespace":)";
    AppendString(out, item.space, /*shown=*/!item.space.empty());
    out += fmt::format(R"(,"status":"{}"}})", item.status);
    return;
  }
  AppendMember(out, "id", item.id);
  if (item.kind == Kind::kReasoning) {
    out += R"(,"summary":[],"type":"reasoning","content":)";
    if (begins) {
      out += "null";
    } else {
      out.push_back('[');
      AppendPart(out, item);
      out.push_back(']');
    }
    out += fmt::format(R"(,"encrypted_content":null,"status":"{}"}})", item.status);
    return;
  }
  out += R"(,"content":[)";
  if (!begins) AppendPart(out, item);
  out += fmt::format(R"(],"role":"assistant","status":"{}","type":"message","phase":null}})",
                     item.status);
}

void ResponseEvents::Emit(std::string_view type, std::string body) {
  const int64_t number = number_++;
  send_(number, EventText(number, type, body));
}

void ResponseEvents::Response(std::string_view type, std::string_view response) {
  const int64_t number = number_++;
  send_(number, ResponseEvent(number, type, response));
}

// Returns the members that locate an event in the response.
std::string ResponseEvents::Place(const OutputItem& item) const {
  std::string out;
  if (item.kind != Kind::kCall) out += R"("content_index":0,)";
  AppendMember(out, "item_id", item.id);
  out += fmt::format(R"(,"output_index":{})", output_index_);
  return out;
}

void ResponseEvents::Open(const OutputItem& item) {
  OutputItem empty = item;
  empty.text.clear();
  empty.status = "in_progress";
  std::string body = R"("item":)";
  AppendOutputItem(body, empty);
  Emit("response.output_item.added", body + fmt::format(R"(,"output_index":{})", output_index_));
  if (item.kind == Kind::kCall) return;
  Emit("response.content_part.added", fmt::format(R"({},"part":{})", Place(item), Part(item)));
}

void ResponseEvents::Delta(const OutputItem& item, std::string_view text,
                           std::string_view logprobs) {
  std::string body = Place(item) + ",";
  AppendMember(body, "delta", text);
  switch (item.kind) {
    case Kind::kMessage:
      return Emit("response.output_text.delta",
                  body + fmt::format(R"(,"logprobs":[{}])", logprobs));
    case Kind::kReasoning: return Emit("response.reasoning_text.delta", std::move(body));
    case Kind::kCall: return Emit("response.function_call_arguments.delta", std::move(body));
  }
}

void ResponseEvents::Close(const OutputItem& item) {
  std::string body = Place(item) + ",";
  if (item.kind == Kind::kCall) {
    AppendMember(body, "arguments", item.text);
    body.push_back(',');
    AppendMember(body, "name", item.name);
    Emit("response.function_call_arguments.done", std::move(body));
  } else {
    const bool reasons = item.kind == Kind::kReasoning;
    if (!reasons) body += fmt::format(R"("logprobs":[{}],)", item.logprobs);
    AppendMember(body, "text", item.text);
    Emit(reasons ? "response.reasoning_text.done" : "response.output_text.done", std::move(body));
    body = Place(item) + R"(,"part":)";
    AppendPart(body, item);
    Emit("response.content_part.done", std::move(body));
  }
  body = R"("item":)";
  AppendOutputItem(body, item);
  Emit("response.output_item.done", body + fmt::format(R"(,"output_index":{})", output_index_));
  ++output_index_;
}

void ReplayResponse(const json::Value& response, ResponseEvents& events) {
  json::Value begun = response;
  for (const char* name : {"incomplete_details", "usage"}) begun.Set(name, json::Value());
  begun.Set("output", json::Value(json::Value::Array{}));
  begun.Set("status", "in_progress");
  const std::string text = json::Write(begun);
  events.Response("response.created", text);
  events.Response("response.in_progress", text);
  const json::Value* output = response.Find("output");
  for (const json::Value& written : output->as_array()) {
    const OutputItem item = ReadItem(written);
    events.Open(item);
    if (!item.text.empty()) events.Delta(item, item.text, "");
    events.Close(item);
  }
  events.Response(LastEventType(TextAt(response, "status")), json::Write(response));
}

}  // namespace sluice
