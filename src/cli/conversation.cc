#include "cli/conversation.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/write_error.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxConversationBytes = uint64_t{64} << 20;

bool IsSystem(const json::Value& message) {
  const json::Value* role = message.Find("role");
  return role != nullptr && role->is_string() && role->as_string() == "system";
}

}  // namespace

void Conversation::Add(std::string_view role, std::string_view content) {
  messages_.push_back(json::Value::Object{{"role", role}, {"content", content}});
}

void Conversation::Add(std::string_view question, const std::vector<std::string>& images) {
  if (images.empty()) return Add("user", question);
  json::Value::Array parts;
  for (const std::string& url : images) {
    parts.push_back(json::Value::Object{{"type", "image_url"},
                                        {"image_url", json::Value::Object{{"url", url}}}});
  }
  parts.push_back(json::Value::Object{{"type", "text"}, {"text", question}});
  messages_.push_back(json::Value::Object{{"role", "user"}, {"content", std::move(parts)}});
}

void Conversation::Add(const AnswerEnd& answer) {
  Add("assistant", answer.text);
  json::Value::Array calls;
  for (const ToolCall& call : answer.calls) {
    json::Value function{json::Value::Object{{"name", call.name}, {"arguments", call.arguments}}};
    calls.push_back(json::Value(json::Value::Object{
        {"id", call.id}, {"type", "function"}, {"function", std::move(function)}}));
  }
  if (!calls.empty()) messages_.back().Set("tool_calls", std::move(calls));
}

void Conversation::Clear() {
  const bool keep = !messages_.empty() && IsSystem(messages_[0]);
  messages_.resize(keep ? 1 : 0);
}

void Conversation::SetSystem(std::string_view content) {
  if (!messages_.empty() && IsSystem(messages_[0])) messages_.erase(messages_.begin());
  if (content.empty()) return;
  messages_.insert(messages_.begin(),
                   json::Value::Object{{"role", "system"}, {"content", content}});
}

std::string Conversation::System() const {
  if (messages_.empty() || !IsSystem(messages_[0])) return "";
  const json::Value* content = messages_[0].Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

Status Conversation::Save(const std::filesystem::path& file) const {
  errno = 0;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << json::Write(json::Value::Object{{"messages", messages_}}) << "\n";
  out.close();
  if (out) return {};
  return Fail(WriteErrorCode(errno, ErrorCode::kInternal),
              fmt::format("{} cannot be written: {}", file.string(), std::strerror(errno)));
}

Status Conversation::Load(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxConversationBytes));
  auto parsed = json::Parse(text);
  if (!parsed) return tl::unexpected<Error>(std::move(parsed).error().In(file.string()));
  const json::Value* messages = &*parsed;
  if (parsed->is_object()) messages = parsed->Find("messages");
  if (messages == nullptr || !messages->is_array()) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: expected a conversation, {{\"messages\": [...]}} or a list of "
                            "messages",
                            file.string()));
  }
  for (size_t i = 0; i < messages->as_array().size(); ++i) {
    const json::Value& message = messages->as_array()[i];
    const json::Value* role = message.is_object() ? message.Find("role") : nullptr;
    if (role == nullptr || !role->is_string()) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("{}: message {} has no role: expected an object with role and content",
                      file.string(), i));
    }
  }
  messages_ = messages->as_array();
  return {};
}

}  // namespace sluice::cli
