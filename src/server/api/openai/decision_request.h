// The requests of POST /v1/systemone (TypeSafe's System One API, as vLLM takes it) and of POST
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
  bool is_bool = false;     // the name stands for true or false
};

struct DecisionQuestion {
  // Whose answers are of options, of yes or no, of an ordered scale.
  enum class Type { kChoice, kNoul, kScore };
  Type type = Type::kChoice;
  std::string id;  // of /v1/decisions the name
  bool has_id = true;
  std::string instructions;
  std::vector<DecisionOption> options;  // of kNoul: yes, no
};

struct DecisionRequest {
  // How the answer is written.
  enum class Shape { kSystemOne, kDecisions };
  Shape shape = Shape::kSystemOne;
  std::optional<std::string> model;
  std::string state;         // what the questions are about
  std::string instructions;  // of the system; "": none
  std::vector<DecisionQuestion> questions;
  json::Value chat_template_kwargs;  // an object or null
  int64_t priority = 0;
  std::optional<std::string> request_id;
  std::string cache_salt;
};

// The most questions of a request, and options of a choice or levels of a score.
inline constexpr size_t kMostSystemOneQuestions = 64;
inline constexpr size_t kMostDecisionQuestions = 400;
inline constexpr size_t kMostChoices = 26;
inline constexpr size_t kMostLevels = 10;

// Errors: 400 names the question and what is wrong with it.
ApiResult<DecisionRequest> ReadSystemOneRequest(const json::Value& body);
ApiResult<DecisionRequest> ReadDecisionRequest(const json::Value& body);

// What a reply may begin with, one for each option; then, for each option, another spelling, where
// the type has one.
std::vector<std::string> LabelsOf(const DecisionQuestion& question);
std::vector<std::string> AliasesOf(const DecisionQuestion& question);

// The question as the model reads it, behind the state.
std::string TextOf(const DecisionQuestion& question);

}  // namespace sluice
