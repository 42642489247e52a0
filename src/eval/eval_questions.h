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
  std::string answer;  // the steps of the solution, then "#### 42"

  friend bool operator==(const EvalQuestion&, const EvalQuestion&) = default;
};

// Reads JSON lines with the strings "question" and "answer", the format of GSM8K. Ignores other
// keys and empty lines. kInvalidArgument names file:line.
Result<std::vector<EvalQuestion>> ReadEvalQuestions(const std::filesystem::path& file);

}  // namespace sluice
