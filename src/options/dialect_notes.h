// What is told of keys and variables of other programs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/dialect_table.h"
#include "options/settings.h"

namespace sluice::options {

// The row about an environment variable: of several that cover `name` the longest; null where none
// does.
const DialectKey* FindVariable(std::string_view name);

// A note for each variable of `environment` that has no effect, and a warning for each VLLM_
// variable that is not known, which is kInvalidArgument where `strict`.
Result<std::vector<Note>> VariableNotes(const std::map<std::string, std::string>& environment,
                                        bool strict);

// A note for each key of --compilation-config that was given; an unknown one is a warning.
std::vector<Note> CompilationNotes(const Settings& settings);

}  // namespace sluice::options
