// Explains the effect of each option, YAML key and variable of all dialects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice::cli {

struct Explanation {
  std::string what;       // name of the option, key or variable, and its other spellings
  std::string_view kind;  // for example "option", "environment"
  std::string dialects;   // for example "sluice vllm trtllm"
  std::string effect;     // acts | mapped | no effect | refused
  std::string text;       // its effect, the option it is mapped to, or the reason
};

// Returns all explanations, in the order of the tables.
std::vector<Explanation> ExplainOptions();

}  // namespace sluice::cli
