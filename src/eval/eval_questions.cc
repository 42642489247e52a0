#include "eval/eval_questions.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_lines.h"

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

Result<EvalQuestion> QuestionOf(const json::Value& row) {
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
  const auto take = [&](const json::Value& row, int64_t) -> Status {
    ASSIGN_OR_RETURN(EvalQuestion question, QuestionOf(row));
    questions.push_back(std::move(question));
    return {};
  };
  RETURN_IF_ERROR(json::ForEachLine(text, file.string(), kLineLimits, take));
  if (questions.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no questions: expected JSON lines with \"question\" and \"answer\"",
                    file.string()));
  }
  return questions;
}

}  // namespace sluice
