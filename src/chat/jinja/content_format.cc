#include "chat/jinja/content_format.h"

#include <set>
#include <string>

#include "chat/jinja/visit.h"

namespace sluice::jinja {

namespace {

using ExpressionKind = Expression::Kind;

// Whether `expression` is `name` or, with a key, `name.key` or name['key']. Filters, tests and
// slices that are applied to the expression are ignored.
bool IsAccess(const Expression& expression, const std::string& name, const char* key) {
  switch (expression.kind) {
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
    case ExpressionKind::kSlice:
      return expression.operands[0] != nullptr && IsAccess(*expression.operands[0], name, key);
    default: break;
  }
  const auto is_name = [&](const Expression& e) {
    return e.kind == ExpressionKind::kName && e.name == name;
  };
  if (key == nullptr) return is_name(expression);
  if (expression.kind == ExpressionKind::kAttribute)
    return expression.name == key && is_name(*expression.operands[0]);
  if (expression.kind != ExpressionKind::kItem || !is_name(*expression.operands[0])) return false;
  const Expression& item = *expression.operands[1];
  return item.kind == ExpressionKind::kConstant && item.constant.is_string() &&
         item.constant.text() == key;
}

}  // namespace

ChatTemplate::ContentFormat DetectContentFormat(const Block& body) {
  // Collects the variables that contain the list of messages. Repeats until no more are found.
  std::set<std::string> lists = {"messages"};
  for (size_t before = 0; before != lists.size();) {
    before = lists.size();
    VisitStatements(body, [&](const Statement& statement) {
      if (statement.kind != Statement::Kind::kSet ||
          statement.target->kind != ExpressionKind::kName)
        return;
      for (const std::string& list : std::set<std::string>(lists)) {
        if (IsAccess(*statement.value, list, nullptr)) lists.insert(statement.target->name);
      }
    });
    if (lists.size() > 64) break;
  }
  std::set<std::string> messages;
  const auto for_each_loop = [&](auto visit) {
    VisitStatements(body, [&](const Statement& statement) {
      if (statement.kind == Statement::Kind::kFor &&
          statement.target->kind == ExpressionKind::kName)
        visit(statement);
    });
  };
  for_each_loop([&](const Statement& loop) {
    for (const std::string& list : lists) {
      if (IsAccess(*loop.value, list, nullptr)) messages.insert(loop.target->name);
    }
  });
  bool found = false;
  for_each_loop([&](const Statement& loop) {
    for (const std::string& message : messages)
      found = found || IsAccess(*loop.value, message, "content");
  });
  return found ? ChatTemplate::ContentFormat::kParts : ChatTemplate::ContentFormat::kString;
}

}  // namespace sluice::jinja
