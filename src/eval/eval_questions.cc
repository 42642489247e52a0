#include "eval/eval_questions.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
constexpr json::ParseLimits kLineLimits{.max_bytes = 1 << 20, .max_depth = 8};

Result<std::string> TextField(const json::Value& row, std::string_view key) {
  const json::Value* value = row.Find(key);
  if (value != nullptr && value->is_string()) return value->as_string();
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("expected a text \"{}\", found {}", key,
                          value == nullptr ? "none" : json::TypeName(value->type())));
}

Result<EvalQuestion> ParseLine(std::string_view line) {
  ASSIGN_OR_RETURN(const json::Value row, json::Parse(line, kLineLimits));
  if (!row.is_object()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("expected a JSON object, found {}", json::TypeName(row.type())));
  }
  EvalQuestion question;
  ASSIGN_OR_RETURN(question.question, TextField(row, "question"));
  ASSIGN_OR_RETURN(question.answer, TextField(row, "answer"));
  return question;
}

}  // namespace

Result<std::vector<EvalQuestion>> ReadEvalQuestions(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxFileBytes));
  std::vector<EvalQuestion> questions;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto question = ParseLine(line);
    if (!question) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {}", file.string(), number, question.error().message));
    }
    questions.push_back(*std::move(question));
  }
  if (questions.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} holds no questions: expected JSON lines with \"question\" and "
                            "\"answer\"",
                            file.string()));
  }
  return questions;
}

}  // namespace sluice
