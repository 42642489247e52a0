// The requests of POST /v1/systemone (TypeSafe's System One API, as vLLM implements it) and of POST
// /v1/decisions (OpenAI's Decisions API): typed questions about a state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api/common/api_error.h"

namespace sluice {

struct DecisionOption {
  std::string name;
  std::string description;  // "": none
  bool is_bool = false;     // whether the name represents true or false
};

struct DecisionQuestion {
  // kChoice: the answer is one of the options. kNoul: yes or no. kScore: a level of an ordered
  // scale.
  enum class Type { kChoice, kNoul, kScore };
  Type type = Type::kChoice;
  std::string id;  // in /v1/decisions the question's name, else its index
  bool has_id = true;
  std::string instructions;
  std::vector<DecisionOption> options;  // for kNoul: yes, no
};

struct DecisionRequest {
  // The API, which determines the shape of the answer.
  enum class Shape { kSystemOne, kDecisions };
  Shape shape = Shape::kSystemOne;
  std::optional<std::string> model;
  std::string state;         // what the questions are about
  std::string instructions;  // system instructions; "": none
  std::vector<DecisionQuestion> questions;
  json::Value chat_template_kwargs;  // an object or null
  int64_t priority = 0;
  std::optional<std::string> request_id;
  std::string cache_salt;
};

// Maximum number of questions in a request, options of a choice, and levels of a score.
inline constexpr size_t kMostSystemOneQuestions = 64;
inline constexpr size_t kMostDecisionQuestions = 400;
inline constexpr size_t kMostChoices = 26;
inline constexpr size_t kMostLevels = 10;

// Errors: 400, which names the question and the reason.
ApiResult<DecisionRequest> ReadSystemOneRequest(const json::Value& body);
ApiResult<DecisionRequest> ReadDecisionRequest(const json::Value& body);

// LabelsOf returns the labels with which a reply may begin, one per option. AliasesOf returns
// another spelling of each label, or an empty list.
std::vector<std::string> LabelsOf(const DecisionQuestion& question);
std::vector<std::string> AliasesOf(const DecisionQuestion& question);

// Returns the question as text for the prompt, which contains it after DecisionRequest::state.
std::string TextOf(const DecisionQuestion& question);

}  // namespace sluice
