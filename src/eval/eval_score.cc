#include "eval/eval_score.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "eval/answer_filters.h"

namespace sluice {
namespace {

constexpr int kTaskVersion = 3;  // the version of GSM8K's task whose rules this program follows

// The standard error of the mean of `count` values that are zero or one. It uses the sample's
// standard deviation.
std::optional<double> StandardError(int64_t right, int64_t count) {
  if (count < 2) return std::nullopt;
  const auto n = static_cast<double>(count);
  const double mean = static_cast<double>(right) / n;
  const double squares = static_cast<double>(right) * (1 - mean) * (1 - mean) +
                         static_cast<double>(count - right) * mean * mean;
  return std::sqrt(squares / (n - 1)) / std::sqrt(n);
}

// Wilson's interval, which lies within [0, 1] even for few questions.
std::pair<double, double> Confidence(int64_t right, int64_t count) {
  constexpr double kZ = 1.959963985;  // quantile of the normal distribution for 95 %
  const auto n = static_cast<double>(count);
  const double mean = static_cast<double>(right) / n, z2 = kZ * kZ;
  const double centre = (mean + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(mean * (1 - mean) / n + z2 / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

// Width on a terminal. Each code point in these texts takes one column.
size_t Places(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

enum class Align { kLeft, kRight };

std::string Padded(std::string_view text, size_t width, Align align) {
  const std::string spaces(width - std::min(width, Places(text)), ' ');
  return align == Align::kLeft ? std::string(text) + spaces : spaces + std::string(text);
}

std::string Centred(std::string_view text, size_t width) {
  const size_t spare = width - std::min(width, Places(text));
  return std::string(spare / 2, ' ') + std::string(text) + std::string(spare - spare / 2, ' ');
}

// Returns the results of `task` in a result file: the object named `task`, or the only one.
const json::Value* TaskResults(const json::Value& file, std::string_view task) {
  const json::Value* results = file.Find("results");
  if (results == nullptr || !results->is_object()) return nullptr;
  if (const json::Value* same = results->Find(task)) return same;
  return results->as_object().size() == 1 ? &results->as_object().front().second : nullptr;
}

}  // namespace

EvalScore ScoreAnswers(const std::vector<EvalQuestion>& questions,
                       const std::vector<std::string>& answers) {
  CHECK(questions.size() == answers.size(), "{} answers to {} questions", answers.size(),
        questions.size());
  CHECK(!questions.empty(), "nothing was asked");
  EvalScore score;
  score.num_questions = static_cast<int64_t>(questions.size());
  const std::pair<std::string_view, std::string (*)(std::string_view)> kFilters[] = {
      {"flexible-extract", FlexibleExtract}, {"strict-match", StrictMatch}};
  for (const auto& [name, filter] : kFilters) {
    int64_t right = 0;
    for (size_t i = 0; i < answers.size(); ++i)
      right += ExactMatch(filter(answers[i]), questions[i].answer) ? 1 : 0;
    const auto [low, high] = Confidence(right, score.num_questions);
    score.filters.push_back({std::string(name),
                             static_cast<double>(right) / static_cast<double>(score.num_questions),
                             StandardError(right, score.num_questions), low, high});
  }
  return score;
}

std::string EvalTable(const EvalScore& score) {
  using Row = std::vector<std::string>;
  const Row heading = {"Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"};
  constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;
  const std::vector<Align> aligns = {kLeft, kRight, kLeft, kRight, kLeft,
                                     kLeft, kRight, kLeft, kRight};
  std::vector<Row> rows;
  for (const FilterScore& filter : score.filters) {
    const bool first = rows.empty();
    rows.push_back(
        {first ? score.task : "", first ? fmt::to_string(kTaskVersion) : "", filter.filter,
         fmt::to_string(score.num_fewshot), "exact_match", "↑", fmt::format("{:.4f}", filter.value),
         "±", filter.standard_error ? fmt::format("{:.4f}", *filter.standard_error) : "   N/A"});
  }
  std::string head = "|", rule = "|";
  std::vector<size_t> widths;
  for (size_t column = 0; column < heading.size(); ++column) {
    size_t width = std::max<size_t>(Places(heading[column]), 3);
    for (const Row& row : rows) width = std::max(width, Places(row[column]));
    widths.push_back(width);
    head += Centred(heading[column], width) + "|";
    const bool right = aligns[column] == kRight;
    rule += std::string(width - (right ? 1 : 0), '-') + (right ? ":|" : "|");
  }
  std::string table = head + "\n" + rule + "\n";
  for (const Row& row : rows) {
    table += "|";
    for (size_t column = 0; column < row.size(); ++column)
      table += Padded(row[column], widths[column], aligns[column]) + "|";
    table += "\n";
  }
  return table;
}

std::string ConfidenceText(const EvalScore& score) {
  std::string text = "95 % confidence:";
  for (const FilterScore& filter : score.filters) {
    text += fmt::format("{} {} {:.4f} to {:.4f}", text.ends_with(':') ? "" : ",", filter.filter,
                        filter.low, filter.high);
  }
  return text + "\n";
}

json::Value EvalResultJson(const EvalScore& score, json::Value config) {
  json::Value task{json::Value::Object{}};
  task.Set("alias", json::Value(score.task));
  task.Set("sample_len", json::Value(score.num_questions));
  for (const FilterScore& filter : score.filters) {
    task.Set("exact_match," + filter.filter, json::Value(filter.value));
    task.Set("exact_match_stderr," + filter.filter,
             filter.standard_error ? json::Value(*filter.standard_error) : json::Value("N/A"));
    task.Set("exact_match_confidence95," + filter.filter,
             json::Value(json::Value::Array{json::Value(filter.low), json::Value(filter.high)}));
  }
  const auto by_task = [&](json::Value value) {
    json::Value object{json::Value::Object{}};
    object.Set(score.task, std::move(value));
    return object;
  };
  json::Value counts{json::Value::Object{}};
  counts.Set("original", json::Value(score.num_questions));
  counts.Set("effective", json::Value(score.num_questions));
  json::Value higher{json::Value::Object{}};
  higher.Set("exact_match", json::Value(true));
  json::Value result{json::Value::Object{}};
  result.Set("results", by_task(std::move(task)));
  result.Set("versions", by_task(json::Value(kTaskVersion)));
  result.Set("n-shot", by_task(json::Value(score.num_fewshot)));
  result.Set("higher_is_better", by_task(std::move(higher)));
  result.Set("n-samples", by_task(std::move(counts)));
  result.Set("config", std::move(config));
  return result;
}

Result<std::vector<EvalDrop>> FindDrops(const EvalScore& score, const json::Value& baseline,
                                        double max_drop) {
  const json::Value* task = TaskResults(baseline, score.task);
  std::vector<EvalDrop> drops;
  size_t compared = 0;
  for (const FilterScore& filter : score.filters) {
    const json::Value* before =
        task == nullptr ? nullptr : task->Find("exact_match," + filter.filter);
    if (before == nullptr || !before->is_number()) continue;
    ++compared;
    // A drop of exactly `max_drop` must pass, despite rounding errors.
    constexpr double kRounding = 1e-9;
    if (before->as_double() - filter.value > max_drop + kRounding)
      drops.push_back({filter.filter, before->as_double(), filter.value});
  }
  if (compared == 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--baseline: expected a result file with results.{}.\"exact_match,{}\" (one "
                    "that --output-path or lm_eval wrote), found none",
                    score.task, score.filters.empty() ? "strict-match" : score.filters[0].filter),
        "baseline");
  }
  return drops;
}

}  // namespace sluice
