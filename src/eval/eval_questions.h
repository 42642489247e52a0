// Questions with known answers, read from a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

struct EvalQuestion {
  std::string question;
  std::string answer;  // the steps, then "#### 42"

  friend bool operator==(const EvalQuestion&, const EvalQuestion&) = default;
};

// Reads JSON lines with the texts "question" and "answer", as GSM8K is published; other keys and
// empty lines are passed over. kInvalidArgument names file:line.
Result<std::vector<EvalQuestion>> ReadEvalQuestions(const std::filesystem::path& file);

}  // namespace sluice
