#include "chat/chat_template.h"

#include "base/utf8.h"
#include "chat/jinja/ast.h"
#include "chat/jinja/content_format.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"
#include "chat/jinja/resolver.h"
#include "chat/jinja/text.h"

namespace sluice {

namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

std::string Title(const std::string& name) {
  return name.empty() ? "chat template" : "chat template " + name;
}

bool ReadsThinking(const std::string& source) {
  const auto holds = [&](const char* text) { return source.find(text) != std::string::npos; };
  return holds("message.thinking") || holds("message['thinking']") ||
         holds("message[\"thinking\"]");
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Compile(std::string source, std::string name) {
  const std::string title = Title(name);
  if (source.size() > kMaxSourceBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                title + ": " + std::to_string(source.size()) + " bytes, at most " +
                    std::to_string(kMaxSourceBytes) + " are read",
                "chat_template");
  }
  if (!IsValidUtf8(source)) {
    return Fail(ErrorCode::kInvalidArgument, title + ": not valid UTF-8", "chat_template");
  }
  // This thread may be running a render, whose budget must not count this template's constants.
  const jinja::Budget::Scope no_budget(nullptr);
  auto program = std::make_shared<jinja::Program>();
  try {
    program->body = jinja::Parse(source);
    jinja::Resolve(*program);
  } catch (const jinja::Failure& failure) {
    return Fail(ErrorCode::kInvalidArgument,
                title + ", line " + std::to_string(failure.line) + ": " + failure.message,
                "chat_template");
  }
  program->content_format = jinja::DetectContentFormat(program->body);
  program->reads_thinking = ReadsThinking(source);
  program->source = std::move(source);
  program->name = std::move(name);
  return ChatTemplate(std::move(program));
}

Result<std::string> ChatTemplate::Render(const json::Value& variables,
                                         const RenderOptions& options) const {
  if (!variables.is_object()) {
    return Fail(ErrorCode::kInvalidArgument,
                std::string("the variables of a chat template must be an object, not ") +
                    json::TypeName(variables.type()));
  }
  try {
    jinja::Interpreter interpreter(*program_, variables, options);
    return interpreter.Run();
  } catch (const jinja::Failure& failure) {
    if (failure.kind == jinja::FailureKind::kCancelled)
      return Fail(ErrorCode::kCancelled, failure.message);
    if (failure.kind == jinja::FailureKind::kRaised || failure.line == 0) {
      return Fail(ErrorCode::kInvalidArgument, failure.message);
    }
    return Fail(ErrorCode::kInvalidArgument, failure.message + " (" + Title(program_->name) +
                                                 ", line " + std::to_string(failure.line) + ")");
  }
}

ChatTemplate::ContentFormat ChatTemplate::content_format() const {
  return program_->content_format;
}
const std::vector<std::string>& ChatTemplate::variables() const {
  return program_->variables;
}
const std::string& ChatTemplate::source() const {
  return program_->source;
}
bool ChatTemplate::reads_thinking() const {
  return program_->reads_thinking;
}

}  // namespace sluice
