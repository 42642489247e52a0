// What a run of questions scored, in lm_eval's words: its table, its JSON, its standard error.
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
  double value = 0;                      // share of the questions that are right
  std::optional<double> standard_error;  // of `value`; none for a single question
  // Where the share of all such questions lies with 95 % confidence (Wilson's interval).
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

// The keys of lm_eval's result file that hold the score; `config` is what was run.
json::Value EvalResultJson(const EvalScore& score, json::Value config);

// A filter that scored lower than before.
struct EvalDrop {
  std::string filter;
  double before = 0;
  double now = 0;
};

// The filters of `score` that lie more than `max_drop` below those of `baseline`, a result file
// of this program or of lm_eval. kInvalidArgument if the file holds no score for the same filters.
Result<std::vector<EvalDrop>> FindDrops(const EvalScore& score, const json::Value& baseline,
                                        double max_drop);

}  // namespace sluice
