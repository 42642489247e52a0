// Environment variables of other programs: which of them act here, and why the others do not.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/settings.h"

namespace sluice::options {

struct Variable {
  std::string_view name;  // one that ends in * stands for all that begin so
  bool acts = false;
  std::string_view here;  // what it does here, or why it does nothing
};
std::span<const Variable> Variables();

// A note for each variable of `environment` that is known and has no effect, and a warning for each
// VLLM_ variable that is not known, which is kInvalidArgument where `strict`.
Result<std::vector<Note>> VariableNotes(const std::map<std::string, std::string>& environment,
                                        bool strict);

}  // namespace sluice::options
