// The score of a run in the formats of lm_eval: its table, its JSON, its standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/eval_questions.h"

namespace sluice {

// The exact-match score with one filter.
struct FilterScore {
  std::string filter;                    // for example "strict-match"
  double value = 0;                      // share of correct answers, from 0 to 1
  std::optional<double> standard_error;  // standard error of `value`; nullopt for a single question
  // 95 % confidence interval (Wilson score) of `value`.
  double low = 0, high = 1;
};

struct EvalScore {
  std::string task = "gsm8k-style";
  int64_t num_fewshot = 0;
  int64_t num_questions = 0;
  std::vector<FilterScore> filters;  // in the order of the table
};

// REQUIRES: there are as many answers as questions, and at least one.
EvalScore ScoreAnswers(const std::vector<EvalQuestion>& questions,
                       const std::vector<std::string>& answers);

// Returns lm_eval's table, with a line for each filter.
std::string EvalTable(const EvalScore& score);
// Returns "95 % confidence: flexible-extract 0.93 to 0.97, strict-match 0.93 to 0.97".
std::string ConfidenceText(const EvalScore& score);

// Returns the members of lm_eval's result file that contain the score. `config`: the settings of
// the run.
json::Value EvalResultJson(const EvalScore& score, json::Value config);

// A filter whose score is lower than before.
struct EvalDrop {
  std::string filter;
  double before = 0;
  double now = 0;
};

// Returns the filters whose score is more than `max_drop` below the score in `baseline`, a result
// file of this program or of lm_eval. kInvalidArgument if the file has no score for the same
// filters.
Result<std::vector<EvalDrop>> FindDrops(const EvalScore& score, const json::Value& baseline,
                                        double max_drop);

}  // namespace sluice
