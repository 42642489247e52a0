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

// The exact match of one filter.
struct FilterScore {
  std::string filter;                    // "strict-match"
  double value = 0;                      // share of correct answers
  std::optional<double> standard_error;  // of `value`; nullopt for a single question
  // 95 % confidence interval (Wilson's) of the share over all such questions.
  double low = 0, high = 1;
};

struct EvalScore {
  std::string task = "gsm8k-style";
  int64_t num_fewshot = 0;
  int64_t num_questions = 0;
  std::vector<FilterScore> filters;  // in the order of the table
};

// REQUIRES: as many answers as questions, and at least one.
EvalScore ScoreAnswers(const std::vector<EvalQuestion>& questions,
                       const std::vector<std::string>& answers);

// lm_eval's table, a line for each filter.
std::string EvalTable(const EvalScore& score);
// "95 % confidence: flexible-extract 0.93 to 0.97, strict-match 0.93 to 0.97".
std::string ConfidenceText(const EvalScore& score);

// The members of lm_eval's result file that contain the score; `config`: the settings of the run.
json::Value EvalResultJson(const EvalScore& score, json::Value config);

// A filter that scored lower than before.
struct EvalDrop {
  std::string filter;
  double before = 0;
  double now = 0;
};

// The filters of `score` that are more than `max_drop` below `baseline`, a result file of this
// program or of lm_eval. kInvalidArgument if the file has no score for the same filters.
Result<std::vector<EvalDrop>> FindDrops(const EvalScore& score, const json::Value& baseline,
                                        double max_drop);

}  // namespace sluice
