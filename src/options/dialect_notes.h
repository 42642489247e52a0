// Notes about keys and variables of other programs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/dialect_table.h"
#include "options/settings.h"

namespace sluice::options {

// Returns the row that matches the environment variable `name`; the longest if several match; null
// if none does.
const DialectKey* FindVariable(std::string_view name);

// Returns a note for each variable in `environment` that has no effect, and a warning for each
// unknown VLLM_ variable. With `strict`, an unknown VLLM_ variable is kInvalidArgument.
Result<std::vector<Note>> VariableNotes(const std::map<std::string, std::string>& environment,
                                        bool strict);

// Returns a note for each given key of --compilation-config, and a warning for an unknown one.
std::vector<Note> CompilationNotes(const Settings& settings);

}  // namespace sluice::options
